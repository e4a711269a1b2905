"""Reference numerics that make the data."""
