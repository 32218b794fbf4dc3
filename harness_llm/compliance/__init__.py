"""Compliance tests: that a performance run gave true answers."""
