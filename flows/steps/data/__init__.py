"""Datasets from solvers, official files and files of one's own."""
