"""What LoadGen's process and the replicas share: messages, keys, token stores, child processes."""
