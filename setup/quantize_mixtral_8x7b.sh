#!/bin/sh
# Quantize the checkpoint of mixtral-8x7b that download_model.py downloaded.
exec sh "$(dirname "$0")/harness_llm.sh" quantize --model mixtral-8x7b "$@"
