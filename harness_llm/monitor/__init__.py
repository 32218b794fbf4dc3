"""What a run shows while it runs."""
