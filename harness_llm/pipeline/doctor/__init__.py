"""Checks of everything that can refuse a submission, before the first expensive step."""
