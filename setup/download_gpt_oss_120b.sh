#!/bin/sh
# Download the data sets of gpt-oss-120b, including calibration and LiveCodeBench. download_model.py downloads the checkpoint.
exec sh "$(dirname "$0")/harness_llm.sh" download --model gpt-oss-120b --part dataset --part calibration --part livecodebench "$@"
