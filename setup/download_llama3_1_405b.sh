#!/bin/sh
# Download the data sets of llama3.1-405b, including calibration. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model llama3.1-405b --part dataset --part calibration "$@"
