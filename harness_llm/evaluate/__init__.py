"""Scores of answers, accuracy gates, verdicts of runs and compliance tests."""
