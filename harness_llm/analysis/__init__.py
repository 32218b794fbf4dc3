"""Analysis of finished runs: comparison."""
