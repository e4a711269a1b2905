"""One training run, from its cell to its result."""
