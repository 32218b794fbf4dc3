"""From VALID runs to a tree in MLCommons' layout and its archive."""
