#!/bin/sh
# A shell, or the command that is given, in the container where models and data are downloaded and quantized; --print shows the
# docker command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" start model_and_dataset "$@"
