"""Checks of everything that can refuse a submission, before anything is downloaded, built or started."""
