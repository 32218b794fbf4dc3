#!/bin/sh
# Steps of setup/Dockerfile: packages NAME ..., aiter, environments LAYER ..., inference URL COMMIT SUBMODULE ...
set -eu

ca=/run/secrets/ca.pem
if [ -s "$ca" ]; then
    export SSL_CERT_FILE="$ca" PIP_CERT="$ca" REQUESTS_CA_BUNDLE="$ca" GIT_SSL_CAINFO="$ca" CURL_CA_BUNDLE="$ca"
fi

# Install the distribution's packages that the base image lacks.
packages() {
    missing=''
    for name; do
        command -v "$name" >/dev/null || dpkg --status "$name" >/dev/null 2>&1 || missing="$missing $name"
    done
    [ -n "$missing" ] || return 0
    if [ -s "$ca" ]; then echo "Acquire::https::CAInfo \"$ca\";" >/tmp/apt.conf; export APT_CONFIG=/tmp/apt.conf; fi
    apt-get update
    # shellcheck disable=SC2086 # words
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing
    rm -rf /var/lib/apt/lists/* /tmp/apt.conf
}

# AITER (AMD's kernels, in vLLM's image for ROCm) loads prebuilt kernels from aiter/jit and compiles others there if the
# folder is writable. Otherwise each process copies the whole folder to ~/.aiter/jit on import: minutes per container,
# and a race between replicas (ROCm/aiter, aiter/jit/core.py, get_user_jit_dir). With AITER_JIT_DIR, AITER does not find
# its prebuilt kernels. chmod of folders only, because a changed file is copied into the layer.
aiter() {
    package=$(python3 -c 'from importlib.util import find_spec
spec = find_spec("aiter")
print(spec.submodule_search_locations[0] if spec else "")')
    [ -n "$package" ] || return 0
    find "$package/jit" -type d -exec chmod a+rwx {} +
}

environments() {
    [ $# -gt 0 ] || return 0
    if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi
    # Compile bytecode now: containers cannot write here. Copy: the cache is another file system.
    UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy sh setup/environments.sh "$@"
}

# Clone mlcommons/inference at one commit: the official checker, and the evaluators, which import its submodules. Both
# are optional here: `doctor` checks before runs that the evaluators of the benchmark work.
inference() {
    [ -n "$1" ] || return 0
    folder=/opt/harness/inference
    git init --quiet "$folder"
    if ! { git -C "$folder" fetch --quiet --depth=1 "$1" "$2" && git -C "$folder" checkout --quiet FETCH_HEAD; }; then
        rm -rf "$folder"
        echo "note: cannot clone $1; this image has no official checker"
        return 0
    fi
    shift 2
    git -C "$folder" submodule --quiet update --init --depth=1 "$@" ||
        echo "note: cannot clone the submodules of mlcommons/inference; this image has no evaluators"
}

step=$1
shift
"$step" "$@"
