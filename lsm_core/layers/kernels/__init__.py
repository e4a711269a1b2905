"""Layers' inner loops, written for speed on CPUs; only layers call them, by way of `forms`.

Each says what it computes as plain torch would, and what it gains. The gains are of a step forward
and backward on one core, beside plain torch, in float32. None has a double backward.
"""
