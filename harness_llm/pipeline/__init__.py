"""The pipeline of a submission: plan, prepare, run and package."""
