"""The published files: where they are, what is in them, and how they become datasets."""
