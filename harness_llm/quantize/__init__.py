"""Quantization recipes; each is a program for the environment of its tool, `.venv-quantize`."""
