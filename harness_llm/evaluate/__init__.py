"""Accuracy scores, accuracy gates, results of runs and compliance tests."""
