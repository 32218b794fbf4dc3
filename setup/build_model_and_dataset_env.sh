#!/bin/sh
# The image of the container where models and data are downloaded and quantized; --print shows the command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" build model_and_dataset "$@"
