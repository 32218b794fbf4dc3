"""The two containers: what they are made of, how they are built and started, and what runs in them."""
