"""Shared by LoadGen's process and the replicas: messages, CURVE keys, token stores, record files, child processes."""
