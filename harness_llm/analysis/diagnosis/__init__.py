"""Diagnosis of a run: the causes of its state and speed, each with evidence, the setting to change and the next value."""
