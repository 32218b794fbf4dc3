#!/bin/sh
# Start a shell or a command in the container that runs benchmarks and packages submissions; --print shows the
# docker command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" start submission "$@"
