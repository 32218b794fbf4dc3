#!/bin/sh
# Download the data sets of deepseek-r1, including calibration and LiveCodeBench. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model deepseek-r1 --part dataset --part calibration --part livecodebench "$@"
