"""A trained map in physical units: normalisation around a model, applied step by step."""
