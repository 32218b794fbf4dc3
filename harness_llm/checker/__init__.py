"""Check of submission trees of any submitter by the rules of a round, and the official checker."""
