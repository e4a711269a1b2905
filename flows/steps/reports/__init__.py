"""What is shown of finished runs."""
