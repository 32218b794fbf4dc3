#!/bin/sh
# Build the image that runs benchmarks and packages submissions; --print shows the command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" build submission "$@"
