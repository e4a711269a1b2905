"""Runs: their checkpoints and results, and who has which in hand."""
