"""LoadGen: its settings, its process and its logs."""
