#!/bin/sh
# Download the data sets of llama2-70b, including calibration. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model llama2-70b --part dataset --part calibration "$@"
