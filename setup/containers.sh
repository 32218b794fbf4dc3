#!/bin/sh
# What the scripts of the containers share: the environment of harness_llm/containers, which does the work.
set -eu
checkout=$(cd "$(dirname "$0")/.." && pwd)
sh "$checkout/setup/environments.sh" host
PYTHONPATH="$checkout" exec "$checkout/.venv-host/bin/python" -m harness_llm.containers "$@"
