"""Finite-volume and finite-difference solvers."""
