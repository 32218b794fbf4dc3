"""Quantization: recipes, and one program per tool, which runs in the tool's environment."""
