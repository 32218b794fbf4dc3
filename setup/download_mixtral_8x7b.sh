#!/bin/sh
# Download the data sets of mixtral-8x7b, including calibration. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model mixtral-8x7b --part dataset --part calibration "$@"
