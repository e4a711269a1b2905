"""Which samples of which problem: the data of an experiment."""
