"""Checks of engine settings against the model, the GPU and vLLM, before anything is started."""
