"""Trained models: packaged, registered, judged, retrained and asked for predictions."""
