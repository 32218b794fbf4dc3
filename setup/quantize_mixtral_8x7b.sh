#!/bin/sh
# The checkpoint of mixtral-8x7b that is served, of the one that download_model.py brought.
exec sh "$(dirname "$0")/harness_llm.sh" quantize --model mixtral-8x7b "$@"
