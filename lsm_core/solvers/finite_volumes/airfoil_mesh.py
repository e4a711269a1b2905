"""A C-shaped mesh around an airfoil, and airfoils made by bending a NACA profile.

The first mesh axis runs from the outflow above the wake to the trailing edge, over the upper side
to the leading edge, back along the lower side and out below the wake; the second runs from the
airfoil to the far field. The two sides of the wake have the same nodes at the start of the second
axis. Lengths are in chords: the leading edge is at x = 0, the trailing edge at x = 1.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

FAR_RADIUS = 40.0
WAKE_END = 40.0
NEAR_GROWTH = 1.02
"""Ratio of neighbouring cells near the airfoil, on a mesh of 50 cells from wall to far field."""
ELEMENT_STATIONS = np.array([-0.25, 0.25, 0.75, 1.25])
ELEMENT_HALF_HEIGHT = 0.1


@dataclass(frozen=True, kw_only=True)
class AirfoilMeshSize:
    """Numbers of cells: along each side of the wake, around the airfoil, out to the far field."""

    n_wake: int = 50
    n_surface: int = 120
    n_normal: int = 50

    def __post_init__(self) -> None:
        if self.n_surface % 2 or min(self.n_wake, self.n_surface, self.n_normal) < 8:
            raise ValueError(f"need at least 8 cells and an even n_surface, got {self}")

    @property
    def n_nodes(self) -> tuple[int, int]:
        """Return the shape of the array of nodes."""
        return 2 * self.n_wake + self.n_surface + 1, self.n_normal + 1


def naca_half_thickness(
    x: Float[np.ndarray, " point"], thickness: float = 0.12
) -> Float[np.ndarray, " point"]:
    """Return half the thickness of a symmetric four-digit NACA profile, closed at its end."""
    return (
        5
        * thickness
        * (0.2969 * np.sqrt(x) - 0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4)
    )


def naca_surface(n_surface: int, thickness: float = 0.12) -> Float[np.ndarray, "node 2"]:
    """Return the surface from the trailing edge over the upper side and back along the lower one.

    The nodes of a side are equally spaced along the chord, with one more at a quarter of the first
    interval, where the nose is round.
    """
    even = np.linspace(0.0, 1.0, n_surface // 2)
    from_nose = np.concatenate([[0.0, even[1] / 4], even[1:]])
    half = naca_half_thickness(from_nose, thickness)
    half[-1] = 0.0  # the sum of the coefficients is zero but for rounding
    upper = np.stack([from_nose, half], axis=-1)[::-1]
    lower = np.stack([from_nose, -half], axis=-1)[1:]
    return np.concatenate([upper, lower])


def bend(
    points: Float[np.ndarray, "*points 2"], displacements: Float[np.ndarray, "8"]
) -> Float[np.ndarray, "*points 2"]:
    """Return the points moved along y by a design element with eight control nodes.

    The element is the box [-0.25, 1.25] x [-0.1, 0.1]. Its controls are numbered from lower left to
    lower right, then from upper right to upper left; between them the displacement is cubic along
    x and linear along y.
    """
    x, y = points[..., 0], points[..., 1]
    lower, upper = displacements[:4], displacements[4:][::-1]
    upward = (y + ELEMENT_HALF_HEIGHT) / (2 * ELEMENT_HALF_HEIGHT)
    shift = np.zeros_like(x)
    for station, at in enumerate(ELEMENT_STATIONS):
        others = np.delete(ELEMENT_STATIONS, station)
        along = np.prod([(x - other) / (at - other) for other in others], axis=0)
        shift += along * ((1 - upward) * lower[station] + upward * upper[station])
    return np.stack([x, y + shift], axis=-1)


def airfoil_mesh(
    size: AirfoilMeshSize, displacements: Float[np.ndarray, "8"], thickness: float = 0.12
) -> Float[np.ndarray, "i j 2"]:
    """Return the nodes of the mesh around a bent airfoil, on straight lines to the far field."""
    straight = naca_surface(size.n_surface, thickness)
    near = _near_line(size, straight, bend(straight, displacements))
    far = _far_line(size)
    outward = stretched_points(size.n_normal, first=2.0 / size.n_surface / FAR_RADIUS)
    return near[:, None] * (1 - outward)[:, None] + far[:, None] * outward[:, None]


def _near_line(
    size: AirfoilMeshSize,
    straight: Float[np.ndarray, "surface 2"],
    surface: Float[np.ndarray, "surface 2"],
) -> Float[np.ndarray, "i 2"]:
    """Return the line along the wake, around the airfoil and along the wake again."""
    # The spacing is that of the straight airfoil, so that all meshes have it.
    last_edge = float(np.linalg.norm(straight[0] - straight[1]))
    away = stretched_points(size.n_wake, first=last_edge / (WAKE_END - 1))[1:, None]
    wake = surface[0] * (1 - away) + np.array([WAKE_END, 0.0]) * away
    return np.concatenate([wake[::-1], surface, wake])


def _far_line(size: AirfoilMeshSize) -> Float[np.ndarray, "i 2"]:
    """Return the outer boundary: a half circle around the trailing edge between two flat sides."""
    angle = np.linspace(np.pi / 2, 3 * np.pi / 2, size.n_surface + 1)
    circle = np.stack([1 + FAR_RADIUS * np.cos(angle), FAR_RADIUS * np.sin(angle)], axis=-1)
    flat_x = np.linspace(1.0, WAKE_END, size.n_wake + 1)[1:]
    above = np.stack([flat_x[::-1], np.full(size.n_wake, FAR_RADIUS)], axis=-1)
    below = np.stack([flat_x, np.full(size.n_wake, -FAR_RADIUS)], axis=-1)
    return np.concatenate([above, circle, below])


def stretched_points(n_cells: int, first: float) -> Float[np.ndarray, " node"]:
    """Return points on [0, 1] whose first cell is given and whose cells grow, slowly at first.

    Three quarters of the cells grow by a ratio of 1.02 (on a mesh of 50 cells; a finer mesh grows
    more slowly, to the same size at the same place); the rest by the ratio that ends at 1.
    """
    growth = NEAR_GROWTH ** (50 / n_cells)
    n_near = 3 * (n_cells + 1) // 4 - 1
    near = first * growth ** np.arange(n_near)
    start, rest = first * growth**n_near, 1 - np.sum(near)
    powers = np.arange(n_cells - n_near)
    if rest <= start * powers.size:
        raise ValueError(f"{n_cells} cells that start with {first} are too long for the interval")
    ratio = brentq(lambda ratio: start * np.sum(ratio**powers) - rest, 1.0, rest / start)
    cells = np.concatenate([near, start * ratio**powers])
    return np.concatenate([[0.0], np.cumsum(cells)[:-1], [1.0]])
