"""Model and data: downloads, data sets, quantization, and the demo's training."""
