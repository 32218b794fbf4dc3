"""Diagnosis of a run: causes of its state and speed, with evidence, the setting to change and the next value."""
