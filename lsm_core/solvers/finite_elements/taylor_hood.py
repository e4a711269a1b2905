"""The Taylor-Hood element on a mapped rectangle: quadratic velocity, linear pressure.

The nodes form an array of odd shape `(2 n + 1, 2 m + 1)`; every block of 3 x 3 of them is one
isoparametric element, and every second node along both axes also carries a pressure. The unknowns
are numbered velocity x, velocity y, pressure, each in the order of the node array.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

N_VELOCITY = 9  # velocity nodes of an element
N_PRESSURE = 4  # pressure nodes of an element
N_LOCAL = 2 * N_VELOCITY + N_PRESSURE


@dataclass(frozen=True, kw_only=True)
class TaylorHoodSpace:
    """Which unknowns belong to which element, and where their products stand in the matrix.

    `indptr` and `indices` are the compressed rows of the matrix; `entries[e, a, b]` is the position
    among its values of the product of the local unknowns `a` and `b` of element `e`.
    """

    n_nodes: tuple[int, int]
    element_nodes: Int[np.ndarray, "element 9"]
    element_unknowns: Int[np.ndarray, "element 22"]
    indptr: Int[np.ndarray, " row_bounds"]
    indices: Int[np.ndarray, " nonzeros"]
    entries: Int[np.ndarray, "element 22 22"]

    @property
    def n_pressure_nodes(self) -> tuple[int, int]:
        """Return the shape of the pressure array."""
        return (self.n_nodes[0] + 1) // 2, (self.n_nodes[1] + 1) // 2

    @property
    def n_velocities(self) -> int:
        """Return the number of values of one velocity component."""
        return self.n_nodes[0] * self.n_nodes[1]

    @property
    def n_unknowns(self) -> int:
        """Return the number of unknowns, two velocity components and the pressure together."""
        n_pressures = self.n_pressure_nodes[0] * self.n_pressure_nodes[1]
        return 2 * self.n_velocities + n_pressures

    def join(
        self,
        velocity_x: Float[np.ndarray, "x y"],
        velocity_y: Float[np.ndarray, "x y"],
        pressure: Float[np.ndarray, "pressure_x pressure_y"],
    ) -> Float[np.ndarray, " unknown"]:
        """Return the vector of unknowns of three fields."""
        return np.concatenate([velocity_x.ravel(), velocity_y.ravel(), pressure.ravel()])

    def split(
        self, unknowns: Float[np.ndarray, " unknown"]
    ) -> tuple[
        Float[np.ndarray, "x y"],
        Float[np.ndarray, "x y"],
        Float[np.ndarray, "pressure_x pressure_y"],
    ]:
        """Return the three fields of a vector of unknowns: velocity x, velocity y, pressure."""
        velocity_x, velocity_y, pressure = np.split(
            unknowns, [self.n_velocities, 2 * self.n_velocities]
        )
        return (
            velocity_x.reshape(self.n_nodes),
            velocity_y.reshape(self.n_nodes),
            pressure.reshape(self.n_pressure_nodes),
        )

    def matrix(self, values: Float[np.ndarray, " nonzeros"]) -> csr_array:
        """Return the sparse matrix with these values."""
        shape = (self.n_unknowns, self.n_unknowns)
        return csr_array((values, self.indices, self.indptr), shape=shape)


@cache
def taylor_hood_space(n_nodes: tuple[int, int]) -> TaylorHoodSpace:
    """Return the space on an array of nodes; it does not depend on where the nodes are."""
    if any(n < 3 or n % 2 == 0 for n in n_nodes):
        raise ValueError(f"n_nodes must be odd and at least 3 along both axes, got {n_nodes}")
    node = np.arange(n_nodes[0] * n_nodes[1]).reshape(n_nodes)
    n_pressure_nodes = ((n_nodes[0] + 1) // 2, (n_nodes[1] + 1) // 2)
    pressure = np.arange(n_pressure_nodes[0] * n_pressure_nodes[1]).reshape(n_pressure_nodes)

    element_nodes = _blocks(node, size=3, stride=2)
    element_unknowns = np.concatenate(
        [
            element_nodes,
            element_nodes + node.size,
            _blocks(pressure, size=2, stride=1) + 2 * node.size,
        ],
        axis=1,
    )
    indptr, indices, entries = _sparsity(element_unknowns, 2 * node.size + pressure.size)
    return TaylorHoodSpace(
        n_nodes=n_nodes,
        element_nodes=element_nodes,
        element_unknowns=element_unknowns,
        indptr=indptr,
        indices=indices,
        entries=entries,
    )


def _blocks(
    numbers: Int[np.ndarray, "x y"], size: int, stride: int
) -> Int[np.ndarray, "element local"]:
    """Return the numbers inside each square block, one row a block."""
    windows = np.lib.stride_tricks.sliding_window_view(numbers, (size, size))
    return windows[::stride, ::stride].reshape(-1, size * size)


def _sparsity(
    element_unknowns: Int[np.ndarray, "element local"], n_unknowns: int
) -> tuple[
    Int[np.ndarray, " row_bounds"],
    Int[np.ndarray, " nonzeros"],
    Int[np.ndarray, "element local local"],
]:
    """Return the compressed rows in which all products of an element's unknowns have a place."""
    rows, columns = element_unknowns[:, :, None], element_unknowns[:, None, :]
    pairs, entries = np.unique(rows * n_unknowns + columns, return_inverse=True)
    row_bounds = np.searchsorted(pairs, np.arange(n_unknowns + 1) * n_unknowns)
    return (
        row_bounds.astype(np.int32),
        (pairs % n_unknowns).astype(np.int32),
        entries.reshape(rows.shape[0], rows.shape[1], rows.shape[1]).astype(np.int32),
    )


@dataclass(frozen=True, kw_only=True)
class ReferenceElement:
    """The basis at Gauss points of the square [-1, 1] x [-1, 1], both axes in node order."""

    weights: Float[np.ndarray, " point"]
    velocity: Float[np.ndarray, "point 9"]
    velocity_gradient: Float[np.ndarray, "point 9 2"]
    pressure: Float[np.ndarray, "point 4"]


@cache
def reference_element(n_gauss: int = 3) -> ReferenceElement:
    """Return the basis at `n_gauss` x `n_gauss` points; three integrate the terms of flow well."""
    points, weights = np.polynomial.legendre.leggauss(n_gauss)
    quadratic = np.stack([points * (points - 1) / 2, 1 - points**2, points * (points + 1) / 2], 1)
    slope = np.stack([points - 0.5, -2 * points, points + 0.5], 1)
    linear = np.stack([(1 - points) / 2, (1 + points) / 2], 1)
    gradient = np.stack([_product(slope, quadratic), _product(quadratic, slope)], axis=2)
    return ReferenceElement(
        weights=np.outer(weights, weights).ravel(),
        velocity=_product(quadratic, quadratic),
        velocity_gradient=gradient,
        pressure=_product(linear, linear),
    )


def _product(
    along_x: Float[np.ndarray, "gauss basis"], along_y: Float[np.ndarray, "gauss basis"]
) -> Float[np.ndarray, "point local"]:
    """Return the products of one-dimensional basis functions at the product points."""
    n_gauss, n_basis = along_x.shape
    products = np.einsum("pa,qb->pqab", along_x, along_y)
    return products.reshape(n_gauss**2, n_basis**2)
