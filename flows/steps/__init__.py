"""Plain functions that connect the mathematics with the storage."""
