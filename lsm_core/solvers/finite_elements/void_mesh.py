"""A unit cell with a random void at its centre, and its mesh of nine-node quadrilaterals.

The void is star-shaped: a ray from the centre at the angle `a` meets its edge at the radius

    r(a) = smallest + (largest - smallest) / (1 + exp(s(a))),

where s is a Gaussian random function on the circle with covariance 4^2 (-Laplacian + 3^2)^-1, cut
after a number of modes. Without the cut the function is as rough as Brownian motion.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from lsm_core.solvers.finite_elements.quadratic_quads import QuadraticMesh

CENTRE = np.array([0.5, 0.5])
AMPLITUDE = 4.0
INVERSE_LENGTH = 3.0


@dataclass(frozen=True, kw_only=True)
class Void:
    """A star-shaped hole: coefficients of s(a) = sum of cosines[k] cos(k a) + sines[k] sin(k a)."""

    cosines: Float[np.ndarray, " modes"]
    sines: Float[np.ndarray, " modes"]
    smallest_radius: float = 0.2
    largest_radius: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.smallest_radius <= self.largest_radius < 0.5:
            raise ValueError(
                f"a void in the unit cell needs 0 < smallest <= largest < 0.5, got radii from "
                f"{self.smallest_radius} to {self.largest_radius}"
            )

    def radius(self, angles: Float[np.ndarray, "*points"]) -> Float[np.ndarray, "*points"]:
        """Return the distance from the centre to the edge in every direction."""
        phases = angles[..., None] * np.arange(len(self.cosines))
        series = np.cos(phases) @ self.cosines + np.sin(phases) @ self.sines
        width = self.largest_radius - self.smallest_radius
        return self.smallest_radius + width / (1 + np.exp(series))

    def covers(self, points: Float[np.ndarray, "*points 2"]) -> Bool[np.ndarray, "*points"]:
        """Return which points lie in the void or on its edge."""
        offset = points - CENTRE
        angles = np.arctan2(offset[..., 1], offset[..., 0])
        return np.hypot(offset[..., 0], offset[..., 1]) <= self.radius(angles)


def round_void(radius: float) -> Void:
    """Return the circular hole of one radius."""
    nothing = np.zeros(1)
    return Void(cosines=nothing, sines=nothing, smallest_radius=radius, largest_radius=radius)


def draw_void(
    generator: np.random.Generator,
    *,
    n_modes: int,
    smallest_radius: float,
    largest_radius: float,
) -> Void:
    """Return a void from the prior with the constant and `n_modes` cosine and sine pairs."""
    wavenumbers = np.arange(n_modes + 1)
    # In the orthonormal basis 1/sqrt(2 pi), cos(k a)/sqrt(pi), sin(k a)/sqrt(pi).
    deviations = AMPLITUDE / np.sqrt(wavenumbers**2 + INVERSE_LENGTH**2) / np.sqrt(np.pi)
    deviations[0] /= np.sqrt(2)
    # Mode by mode, so that fewer modes of the same seed are the same void, smoothed.
    coefficients = deviations[:, None] * generator.standard_normal((n_modes + 1, 2))
    return Void(
        cosines=coefficients[:, 0],
        sines=coefficients[:, 1],
        smallest_radius=smallest_radius,
        largest_radius=largest_radius,
    )


@dataclass(frozen=True, kw_only=True)
class CellMesh(QuadraticMesh):
    """The mesh of a unit cell, with what its boundary conditions need.

    Nodes lie on rings around the void, the first on its edge and the last on the square: node
    `ring * n_rays + ray`. Rays are numbered from the corner (0, 0), bottom side first, then right,
    top and left; the nodes of a coarse mesh are nodes of one with doubled numbers of elements.
    """

    n_rings: int
    n_rays: int
    bottom: Int[np.ndarray, " bottom"]
    top_edges: Int[np.ndarray, "edges 3"]


def mesh_unit_cell(
    void: Void, *, n_around: int, n_outward: int, outward_growth: float = 1.0
) -> CellMesh:
    """Return the mesh of `n_around` by `n_outward` elements between the void and the square.

    Along each ray an element is `outward_growth` times as long as the one inside it.
    """
    if n_around % 4:
        raise ValueError(f"each side of the square needs as many elements, got {n_around} around")
    n_rays, n_rings = 2 * n_around, 2 * n_outward + 1
    outer = _square_points(n_rays)
    offset = outer - CENTRE
    angles = np.arctan2(offset[:, 1], offset[:, 0])
    inner = CENTRE + void.radius(angles)[:, None] * offset / np.linalg.norm(offset, axis=1)[:, None]
    fractions = _graded_fractions(n_outward, outward_growth)[:, None, None]
    nodes = ((1 - fractions) * inner + fractions * outer).reshape(-1, 2)

    outermost = (n_rings - 1) * n_rays
    per_side = n_rays // 4
    top = outermost + np.arange(2 * per_side, 3 * per_side + 1)
    return CellMesh(
        nodes=nodes,
        elements=_ring_elements(n_around, n_outward),
        n_rings=n_rings,
        n_rays=n_rays,
        bottom=outermost + np.arange(per_side + 1),
        top_edges=np.stack([top[:-2:2], top[1:-1:2], top[2::2]], axis=-1),
    )


def _square_points(n_rays: int) -> Float[np.ndarray, "rays 2"]:
    """Return equally spaced points of the unit square's boundary, from (0, 0), anticlockwise."""
    along = np.arange(n_rays // 4) / (n_rays // 4)
    zero, one = np.zeros_like(along), np.ones_like(along)
    sides = [(along, zero), (one, along), (1 - along, one), (zero, 1 - along)]
    return np.concatenate([np.stack(side, axis=-1) for side in sides])


def _graded_fractions(n_outward: int, growth: float) -> Float[np.ndarray, " rings"]:
    """Return the places of the rings from 0 (void) to 1 (square), middle nodes at the centre."""
    ends = np.concatenate([[0.0], np.cumsum(growth ** np.arange(n_outward))])
    ends /= ends[-1]
    fractions = np.empty(2 * n_outward + 1)
    fractions[::2] = ends
    fractions[1::2] = (ends[:-1] + ends[1:]) / 2
    return fractions


def _ring_elements(n_around: int, n_outward: int) -> Int[np.ndarray, "elements 9"]:
    """Return the nodes of every element: outward is its first direction, around its second."""
    n_rays = 2 * n_around
    rings = 2 * np.arange(n_outward)[:, None, None, None] + np.arange(3)[:, None]
    rays = 2 * np.arange(n_around)[None, :, None, None] + np.arange(3)
    return (rings * n_rays + rays % n_rays).reshape(-1, 9)
