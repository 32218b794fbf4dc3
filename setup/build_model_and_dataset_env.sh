#!/bin/sh
# Build the image that downloads and quantizes models and data; --print shows the command. Variables: docs/containers.md.
exec sh "$(dirname "$0")/containers.sh" build model_and_dataset "$@"
