"""From a request to a checked tree: plan, run, judge, package, check."""
