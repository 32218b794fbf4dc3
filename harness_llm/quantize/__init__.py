"""Quantization: recipes as data, and a program per tool that runs in the environment of its tool."""
