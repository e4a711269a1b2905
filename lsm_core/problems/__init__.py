"""What a PDE problem is made of: variables, samples, shapes and normalisation."""
