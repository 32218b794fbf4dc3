#!/bin/sh
# A shell, or the command that is given, in the container where the benchmark runs and the submission is packed; --print shows the
# docker command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" start submission "$@"
