"""A page on this machine to play with: the surrogate at once, the solver beside it."""
