"""Engines behind one protocol: vLLM, transformers, servers with OpenAI's API, the replay engine."""
