"""From a machine with accelerators to a finished, checked MLPerf Inference submission for LLMs."""
