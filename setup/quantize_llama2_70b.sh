#!/bin/sh
# Quantize the checkpoint of llama2-70b that download_model.py downloaded.
exec sh "$(dirname "$0")/harness_llm.sh" quantize --model llama2-70b "$@"
