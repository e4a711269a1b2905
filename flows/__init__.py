"""The command line, the flows and the steps they are made of."""
