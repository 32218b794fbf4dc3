#!/bin/sh
# Download the data sets of gptj, including calibration. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model gptj --part dataset --part calibration "$@"
