"""The fleet: replicas, the messages they speak, and who gets which query."""
