#!/bin/sh
# The image of the container where the benchmark runs and the submission is packed; --print shows the command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" build submission "$@"
