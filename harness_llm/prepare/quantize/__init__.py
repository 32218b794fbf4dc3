"""Quantization: recipes as data, and one program per tool, run in the tool's own environment."""
