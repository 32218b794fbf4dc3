"""Benchmarks of the harness itself, against raw vLLM; run by `make bench`."""
