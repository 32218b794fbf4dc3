#!/bin/sh
# Run harness_llm.containers in its environment, .venv-host.
set -eu
unset CDPATH
checkout=$(cd "$(dirname "$0")/.." && pwd)
sh "$checkout/setup/environments.sh" host
PYTHONPATH="$checkout" exec "$checkout/.venv-host/bin/python" -m harness_llm.containers "$@"
