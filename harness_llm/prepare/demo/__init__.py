"""The demo: a small Llama, its data set and its reference answers, all made on this machine."""
