"""Records of runs: run directories, fingerprints, and the selection of runs for a result."""
