"""What `make bench` runs: the harness against raw vLLM."""
