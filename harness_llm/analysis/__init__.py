"""Analysis of finished runs: table of runs, comparison with confidence intervals, bundle for a bug report."""
