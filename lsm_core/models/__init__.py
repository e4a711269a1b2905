"""The models: one file, one config and one class each; the table is in catalogue.py."""
