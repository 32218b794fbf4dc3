"""MBXP: run model-generated programs with their tests, in a container."""
