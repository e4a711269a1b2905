"""What to draw of a sample."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture: values at positions.

    One array of positions makes a line. Two arrays of the shape of the values make a mesh if that
    shape has two axes, and scattered points if it has one.
    """

    title: str
    positions: tuple[np.ndarray[Any, np.dtype[Any]], ...]
    values: np.ndarray[Any, np.dtype[Any]]
    unit: str = "1"
    true_to_scale: bool = True
    """Whether a length is drawn the same along both axes."""
    window: tuple[tuple[float, float], tuple[float, float]] | None = None
    """The part of the plane to draw, all of it if None."""
