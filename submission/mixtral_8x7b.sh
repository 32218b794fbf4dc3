#!/bin/sh
# Run mixtral-8x7b and make the checked tree. Settings from the environment: COMPANY, SYSTEM_NAME, GPU_NAME ... (README)
exec sh "$(dirname "$0")/../setup/harness_llm.sh" submit --model mixtral-8x7b --environment "$@"
