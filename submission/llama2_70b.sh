#!/bin/sh
# Run llama2-70b and make the checked tree. Settings from the environment: COMPANY, SYSTEM_NAME, GPU_NAME ... (README)
exec sh "$(dirname "$0")/../setup/harness_llm.sh" submit --model llama2-70b --environment "$@"
