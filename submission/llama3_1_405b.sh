#!/bin/sh
# Run llama3.1-405b and make the checked tree. Settings from the environment: COMPANY, SYSTEM_NAME, GPU_NAME ... (README)
exec sh "$(dirname "$0")/../setup/harness_llm.sh" submit --model llama3.1-405b --environment "$@"
