"""Runs, reports and models as MLflow shows them."""
