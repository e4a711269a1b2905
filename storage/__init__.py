"""Everything that is kept: datasets, checkpoints and run logs."""
