"""Analysis of finished runs: table of runs, comparison with intervals, diagnosis, bundle for a bug report."""
