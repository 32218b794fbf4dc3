#!/bin/sh
# The data sets of gptj, calibration included; the checkpoint is download_model.py's.
exec sh "$(dirname "$0")/harness_llm.sh" download --model gptj --part dataset --part calibration "$@"
