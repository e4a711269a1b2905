"""The mathematics: problems, solvers, models and their training, with no file, network or clock."""
