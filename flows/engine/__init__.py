"""How Prefect runs the steps: tasks, the matrix of cells, progress."""
