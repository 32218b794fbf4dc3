#!/bin/sh
# The data sets of llama3.1-8b-edge, calibration included; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model llama3.1-8b-edge --part dataset --part calibration "$@"
