#!/bin/sh
# The data sets of mixtral-8x7b, calibration included; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model mixtral-8x7b --part dataset --part calibration "$@"
