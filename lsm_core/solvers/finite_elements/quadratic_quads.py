"""Nine-node quadrilaterals: mesh, shape functions and Gauss points.

The nodes of the reference square [-1, 1]^2 are numbered row by row: node 3 i + j stands at
(i - 1, j - 1).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, kw_only=True)
class QuadraticMesh:
    """Isoparametric nine-node quadrilaterals in the plane."""

    nodes: Float[np.ndarray, "nodes 2"]
    elements: Int[np.ndarray, "elements 9"]


@dataclass(frozen=True, kw_only=True)
class ReferencePoints:
    """Points of the reference square with the shape functions there."""

    values: Float[np.ndarray, "points 9"]
    gradients: Float[np.ndarray, "points 9 2"]
    weights: Float[np.ndarray, " points"]


def reference_points(
    points: Float[np.ndarray, "points 2"], weights: Float[np.ndarray, " points"] | None = None
) -> ReferencePoints:
    """Return the shape functions and their gradients at points of the reference square."""
    along_first, slope_first = _quadratic(points[:, 0])
    along_second, slope_second = _quadratic(points[:, 1])
    gradients = [_product(slope_first, along_second), _product(along_first, slope_second)]
    return ReferencePoints(
        values=_product(along_first, along_second),
        gradients=np.stack(gradients, axis=-1),
        weights=np.ones(len(points)) if weights is None else weights,
    )


def gauss_points(n_along: int = 3) -> ReferencePoints:
    """Return the Gauss rule with `n_along` points a direction, exact to degree 2 n - 1 in each."""
    abscissas, weights = np.polynomial.legendre.leggauss(n_along)
    first, second = np.meshgrid(abscissas, abscissas, indexing="ij")
    return reference_points(
        np.stack([first.ravel(), second.ravel()], axis=-1), np.outer(weights, weights).ravel()
    )


def node_points() -> ReferencePoints:
    """Return the nine nodes themselves, in their order."""
    first, second = np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], indexing="ij")
    return reference_points(np.stack([first.ravel(), second.ravel()], axis=-1))


def physical_gradients(
    mesh: QuadraticMesh, points: ReferencePoints
) -> tuple[Float[np.ndarray, "elements points 9 2"], Float[np.ndarray, "elements points"]]:
    """Return the gradients of the shape functions in the plane, and the Jacobian determinants."""
    corners = mesh.nodes[mesh.elements]  # (elements, 9, 2)
    jacobians = np.einsum("eni,pnj->epij", corners, points.gradients)
    determinants = np.linalg.det(jacobians)
    gradients = np.einsum("pnj,epji->epni", points.gradients, np.linalg.inv(jacobians))
    return gradients, determinants


def physical_positions(
    mesh: QuadraticMesh, points: ReferencePoints
) -> Float[np.ndarray, "elements points 2"]:
    """Return where the reference points of every element lie in the plane."""
    return np.einsum("pn,eni->epi", points.values, mesh.nodes[mesh.elements])


def edge_loads(
    mesh: QuadraticMesh, edges: Int[np.ndarray, "edges 3"], traction: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, "nodes 2"]:
    """Return the nodal forces of a constant traction on straight edges (first, middle, last node).

    With the middle node at the centre of a straight edge, Simpson's weights are exact.
    """
    loads = np.zeros_like(mesh.nodes)
    lengths = np.linalg.norm(mesh.nodes[edges[:, 2]] - mesh.nodes[edges[:, 0]], axis=-1)
    shares = np.outer(lengths, np.array([1.0, 4.0, 1.0]) / 6)
    np.add.at(loads, edges, shares[:, :, None] * traction)
    return loads


def folded_elements(mesh: QuadraticMesh) -> Bool[np.ndarray, " elements"]:
    """Return which elements have a Jacobian that is not positive at one of their nodes."""
    corners = mesh.nodes[mesh.elements]
    jacobians = np.einsum("eni,pnj->epij", corners, node_points().gradients)
    return (np.linalg.det(jacobians) <= 0).any(axis=1)


def _quadratic(
    position: Float[np.ndarray, " points"],
) -> tuple[Float[np.ndarray, "points 3"], Float[np.ndarray, "points 3"]]:
    """Return the Lagrange polynomials on the nodes -1, 0, 1, and their derivatives."""
    values = [position * (position - 1) / 2, 1 - position**2, position * (position + 1) / 2]
    slopes = [position - 0.5, -2 * position, position + 0.5]
    return np.stack(values, axis=-1), np.stack(slopes, axis=-1)


def _product(
    first: Float[np.ndarray, "points 3"], second: Float[np.ndarray, "points 3"]
) -> Float[np.ndarray, "points 9"]:
    """Return the products of every function along the first direction with every second one."""
    return (first[:, :, None] * second[:, None, :]).reshape(-1, 9)
