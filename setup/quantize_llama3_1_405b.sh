#!/bin/sh
# Quantize the checkpoint of llama3.1-405b that download_model.py downloaded.
exec sh "$(dirname "$0")/harness_llm.sh" quantize --model llama3.1-405b "$@"
