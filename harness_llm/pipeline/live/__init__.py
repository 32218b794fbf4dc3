"""Live view of a starting replica pool and of a run: its state, the terminal's view, Prometheus metrics."""
