"""How Prefect runs the steps: tasks, cells here and on work pools, progress."""
