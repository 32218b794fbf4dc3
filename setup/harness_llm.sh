#!/bin/sh
# Run harness-llm of this checkout's environment, else of PATH. The scripts of setup/ and submission/ call it.
set -eu
unset CDPATH
checkout=$(cd "$(dirname "$0")/.." && pwd)
# Containers have their environments in HARNESS_LLM_ENVIRONMENTS; the checkout's belong to the host. NVIDIA: .venv-cuda.
environments=${HARNESS_LLM_ENVIRONMENTS:-$checkout}
PATH="$environments/.venv-cuda/bin:$environments/.venv/bin:$PATH"
if ! command -v harness-llm >/dev/null; then
    cat >&2 <<END
error: harness-llm is not installed
  where: $environments/.venv/bin, .venv-cuda/bin and PATH

hint: make -C $checkout setup
END
    exit 3
fi
exec harness-llm "$@"
