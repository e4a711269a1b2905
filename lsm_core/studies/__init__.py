"""The studies beside the main table: what each trains, and what a report says of it."""
