"""The demo: train a small Llama, make its data set and its reference scores on this machine."""
