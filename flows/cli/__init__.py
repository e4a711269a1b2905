"""The command line: thin calls of the same flows and steps; torch and Prefect are imported late."""
