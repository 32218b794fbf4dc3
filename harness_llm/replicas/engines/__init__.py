"""Engines with one interface: vLLM, transformers, servers with OpenAI's API, the replay engine."""
