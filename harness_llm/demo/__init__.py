"""The embedded default benchmark: its data set, its model and its reference answers, all made on this machine."""
