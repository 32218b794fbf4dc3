#!/bin/sh
# Download the data sets of llama3.1-8b-edge, including calibration. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model llama3.1-8b-edge --part dataset --part calibration "$@"
