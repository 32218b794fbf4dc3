"""Replicas: a replica's process, its engine, and the pool that starts, watches and restarts replicas."""
