"""Fourier pseudo-spectral solvers on periodic domains."""
