#!/bin/sh
# The checkpoint of llama2-70b that is served, of the one that download_model.py brought.
exec sh "$(dirname "$0")/harness_llm.sh" quantize --model llama2-70b "$@"
