"""Metrics, and what a model costs."""
