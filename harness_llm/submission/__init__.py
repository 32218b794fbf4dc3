"""Packaging: the submission tree in MLCommons' layout, its documents and its archive, from VALID runs."""
