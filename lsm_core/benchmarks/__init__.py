"""The benchmark problems: one file and one data card each."""
