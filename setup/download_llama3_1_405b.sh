#!/bin/sh
# The data sets of llama3.1-405b, calibration included; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model llama3.1-405b --part dataset --part calibration "$@"
