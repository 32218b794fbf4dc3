#!/bin/sh
# The data sets of gpt-oss-120b, with those of calibration and of LiveCodeBench's tests; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model gpt-oss-120b --part dataset --part calibration --part livecodebench "$@"
