"""Check of a submission tree, of any submitter, against the rules of a round."""
