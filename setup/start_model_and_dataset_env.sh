#!/bin/sh
# Start a shell or a command in the container that downloads and quantizes models and data; --print shows the
# docker command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" start model_and_dataset "$@"
