#!/bin/sh
# llama3.1-405b: runs, then the checked tree, as the environment says: COMPANY, SYSTEM_NAME, GPU_NAME ... (README)
exec sh "$(dirname "$0")/../setup/harness_llm.sh" submit --model llama3.1-405b --environment "$@"
