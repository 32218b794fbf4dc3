"""`harness-llm doctor`: checks of machine, software and settings before the first expensive step."""
