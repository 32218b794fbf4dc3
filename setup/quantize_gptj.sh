#!/bin/sh
# The checkpoint of gptj that is served, of the one that download_model.py brought.
exec sh "$(dirname "$0")/harness_llm.sh" quantize --model gptj "$@"
