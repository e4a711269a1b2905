"""Fields in files that people bring and take away."""
