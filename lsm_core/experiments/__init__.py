"""Which model with which settings on which benchmark, as functions."""
