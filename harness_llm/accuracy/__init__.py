"""Accuracy: scores of answers, and the bounds they are held to."""
