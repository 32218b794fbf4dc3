"""MBXP: execution of generated programs against their tests, in a container."""
