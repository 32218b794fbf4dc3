"""Data sets: the token store, and one module per source."""
