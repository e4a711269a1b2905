"""Finite-element solvers."""
