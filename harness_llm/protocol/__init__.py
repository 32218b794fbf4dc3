"""Shared by LoadGen's process and the replicas: messages, CURVE keys, token stores, child processes."""
