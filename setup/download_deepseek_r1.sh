#!/bin/sh
# The data sets of deepseek-r1, with those of calibration and of LiveCodeBench's tests; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model deepseek-r1 --part dataset --part calibration --part livecodebench "$@"
