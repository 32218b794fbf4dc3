#!/bin/sh
# The steps of setup/Dockerfile: packages NAME ..., environments LAYER ..., inference URL COMMIT.
set -eu

ca=/run/secrets/ca.pem
if [ -s "$ca" ]; then
    export SSL_CERT_FILE="$ca" PIP_CERT="$ca" REQUESTS_CA_BUNDLE="$ca" GIT_SSL_CAINFO="$ca" CURL_CA_BUNDLE="$ca"
fi

# Debian's and Ubuntu's own tools and libraries, those that the base image lacks.
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

environments() {
    [ $# -gt 0 ] || return 0
    if [ -s /run/secrets/pip.conf ]; then export PIP_CONFIG_FILE=/run/secrets/pip.conf; fi
    # Nobody inside may write there, so what Python compiles is compiled now. The cache is another file system.
    UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy sh setup/environments.sh "$@"
}

# mlcommons/inference at one commit, for the official checker; without it ours is alone.
inference() {
    [ -n "$1" ] || return 0
    folder=/opt/harness/inference
    git init --quiet "$folder"
    if git -C "$folder" fetch --quiet --depth=1 "$1" "$2" && git -C "$folder" checkout --quiet FETCH_HEAD; then
        return 0
    fi
    rm -rf "$folder"
    echo "note: $1 cannot be cloned, so the official checker is not in this image"
}

step=$1
shift
"$step" "$@"
