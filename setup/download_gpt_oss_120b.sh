#!/bin/sh
# The data sets of gpt-oss-120b, calibration included; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model gpt-oss-120b --part dataset --part calibration "$@"
