#!/bin/sh
# harness-llm: this checkout's own, or else the one on PATH. What is called like a task in this folder calls it.
set -eu
checkout=$(cd "$(dirname "$0")/.." && pwd)
# In a container the checkout's own environments are those of the machine outside. NVIDIA nodes have .venv-cuda.
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
