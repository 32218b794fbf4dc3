#!/bin/sh
# The data sets of llama2-70b, calibration included; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model llama2-70b --part dataset --part calibration "$@"
