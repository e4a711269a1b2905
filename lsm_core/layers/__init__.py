"""Building blocks of the models, in any dimension."""
