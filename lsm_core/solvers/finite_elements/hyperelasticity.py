"""Static equilibrium of an incompressible rubber sheet in plane stress, by finite elements.

The strain energy is that of Rivlin and Saunders (Mooney), W = C1 (I1 - 3) + C2 (I2 - 3). In plane
stress incompressibility fixes the stretch across the sheet, C33 = 1 / det C, so that W is a
function of the in-plane tensor C = F^T F alone, with t = tr C and d = det C:

    W(C) = C1 (t + 1/d - 3) + C2 (t/d + d - 3).

Equilibrium Div(F S) = 0, S = 2 dW/dC, is solved in the undeformed configuration (total Lagrangian)
under dead loads, with Newton's method.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import coo_array, csc_array
from scipy.sparse.linalg import splu

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.quadratic_quads import (
    QuadraticMesh,
    ReferencePoints,
    gauss_points,
    physical_gradients,
)

# Below this share of the load the residual is rounding, and Newton's method has arrived.
TOLERANCE = 1e-10


@dataclass(frozen=True, kw_only=True)
class MooneyRivlin:
    """The incompressible plane-stress material; moduli in Pa.

    For small strains Young's modulus is 6 (C1 + C2) and Poisson's ratio is 1/2.
    """

    first_modulus: float
    second_modulus: float

    def energy(self, right_cauchy_green: Float[np.ndarray, "*p 2 2"]) -> Float[np.ndarray, "*p"]:
        """Return the strain energy W per undeformed volume."""
        trace, determinant = _invariants(right_cauchy_green)
        return self.first_modulus * (trace + 1 / determinant - 3) + self.second_modulus * (
            trace / determinant + determinant - 3
        )

    def stress(
        self, right_cauchy_green: Float[np.ndarray, "*p 2 2"]
    ) -> Float[np.ndarray, "*p 2 2"]:
        """Return the second Piola-Kirchhoff stress S = 2 dW/dC."""
        trace, determinant = _invariants(right_cauchy_green)
        on_identity = self.first_modulus + self.second_modulus / determinant
        on_inverse = self._weight_of_inverse(trace, determinant)
        inverse = np.linalg.inv(right_cauchy_green)
        return 2 * (
            on_identity[..., None, None] * np.eye(2) + on_inverse[..., None, None] * inverse
        )

    def tangent(
        self, right_cauchy_green: Float[np.ndarray, "*p 2 2"]
    ) -> Float[np.ndarray, "*p 2 2 2 2"]:
        """Return the tangent 2 dS/dC = 4 d2W/dC dC."""
        trace, determinant = _invariants(right_cauchy_green)
        inverse = np.linalg.inv(right_cauchy_green)
        identity = np.broadcast_to(np.eye(2), inverse.shape)
        mixed = self.second_modulus / determinant
        twice = (self.first_modulus + self.second_modulus * trace) / determinant
        twice = twice + self.second_modulus * determinant
        products = np.einsum("...ik,...jl->...ijkl", inverse, inverse)
        symmetric = (products + np.swapaxes(products, -1, -2)) / 2
        return 4 * (
            -_scaled(mixed, _outer(identity, inverse) + _outer(inverse, identity))
            + _scaled(twice, _outer(inverse, inverse))
            - _scaled(self._weight_of_inverse(trace, determinant), symmetric)
        )

    def _weight_of_inverse(
        self, trace: Float[np.ndarray, "*p"], determinant: Float[np.ndarray, "*p"]
    ) -> Float[np.ndarray, "*p"]:
        """Return the factor of C^-1 in dW/dC."""
        return (
            -(self.first_modulus + self.second_modulus * trace) / determinant
            + self.second_modulus * determinant
        )


@dataclass(frozen=True, kw_only=True)
class Equilibrium:
    """Displacements under the full load, with the residuals relative to the load on the way.

    `residuals` lists the iterations of the last load step, the first before any correction.
    """

    displacement: Float[np.ndarray, "nodes 2"]
    residuals: tuple[float, ...]


def solve_equilibrium(
    mesh: QuadraticMesh,
    material: MooneyRivlin,
    *,
    loads: Float[np.ndarray, "nodes 2"],
    fixed: Bool[np.ndarray, "nodes 2"],
    n_load_steps: int = 1,
    max_iterations: int = 12,
) -> Equilibrium:
    """Return the equilibrium under dead nodal loads, with the fixed displacements held at zero.

    Raises SolveFailed when Newton's method does not bring the residual below 1e-10 of the load.
    """
    displacement = np.zeros_like(mesh.nodes)
    residuals: tuple[float, ...] = ()
    for step in range(1, n_load_steps + 1):
        displacement, residuals = _newton(
            mesh,
            material,
            displacement,
            loads=loads * (step / n_load_steps),
            fixed=fixed,
            max_iterations=max_iterations,
        )
    return Equilibrium(displacement=displacement, residuals=residuals)


def cauchy_stress(
    mesh: QuadraticMesh,
    material: MooneyRivlin,
    displacement: Float[np.ndarray, "nodes 2"],
    points: ReferencePoints,
) -> Float[np.ndarray, "elements points 2 2"]:
    """Return the true stress F S F^T at reference points of every element (J = 1)."""
    gradients, _ = physical_gradients(mesh, points)
    deformation = _deformation(mesh, displacement, gradients)
    stress = material.stress(np.swapaxes(deformation, -1, -2) @ deformation)
    return deformation @ stress @ np.swapaxes(deformation, -1, -2)


def von_mises(stress: Float[np.ndarray, "*points 2 2"]) -> Float[np.ndarray, "*points"]:
    """Return the von Mises stress of plane stress."""
    first, second, shear = stress[..., 0, 0], stress[..., 1, 1], stress[..., 0, 1]
    return np.sqrt(first**2 - first * second + second**2 + 3 * shear**2)


def internal_forces(
    mesh: QuadraticMesh, material: MooneyRivlin, displacement: Float[np.ndarray, "nodes 2"]
) -> tuple[Float[np.ndarray, "nodes 2"], csc_array]:
    """Return the nodal forces of the stress, and their derivative by the displacements.

    The matrix numbers the unknowns node by node: 2 node + component.
    """
    points = gauss_points()
    gradients, determinants = physical_gradients(mesh, points)
    volumes = determinants * points.weights  # (elements, points)
    deformation = _deformation(mesh, displacement, gradients)
    right_cauchy_green = np.swapaxes(deformation, -1, -2) @ deformation
    stress = material.stress(right_cauchy_green)

    forces = np.zeros_like(mesh.nodes)
    # P = F S, and the force on node n is the integral of P grad N_n.
    element_forces = np.einsum("ep,epij,epnj->eni", volumes, deformation @ stress, gradients)
    np.add.at(forces, mesh.elements, element_forces)

    stretching = _material_stiffness(
        material.tangent(right_cauchy_green), deformation, gradients, volumes
    )
    turning = _geometric_stiffness(stress, gradients, volumes)
    return forces, _assemble(mesh, stretching + turning)


def _material_stiffness(
    tangent: Float[np.ndarray, "elements points 2 2 2 2"],
    deformation: Float[np.ndarray, "elements points 2 2"],
    gradients: Float[np.ndarray, "elements points 9 2"],
    volumes: Float[np.ndarray, "elements points"],
) -> Float[np.ndarray, "elements 18 18"]:
    """Return the part of the element stiffness that comes from the change of stress."""
    n_elements, n_points = volumes.shape
    # The strain by the unknowns: sym(F^T e_k (x) grad N_n).
    strain = np.einsum("epkj,epni->epijnk", deformation, gradients)
    strain = ((strain + np.swapaxes(strain, 2, 3)) / 2).reshape(n_elements, n_points, 4, 18)
    stress = tangent.reshape(n_elements, n_points, 4, 4) @ strain
    stress *= volumes[..., None, None]
    return strain.reshape(n_elements, -1, 18).mT @ stress.reshape(n_elements, -1, 18)


def _geometric_stiffness(
    stress: Float[np.ndarray, "elements points 2 2"],
    gradients: Float[np.ndarray, "elements points 9 2"],
    volumes: Float[np.ndarray, "elements points"],
) -> Float[np.ndarray, "elements 18 18"]:
    """Return the part of the element stiffness that comes from turning the present stress."""
    between_nodes = (gradients @ (volumes[..., None, None] * stress) @ gradients.mT).sum(axis=1)
    return np.einsum("enm,ij->enimj", between_nodes, np.eye(2)).reshape(-1, 18, 18)


def _newton(
    mesh: QuadraticMesh,
    material: MooneyRivlin,
    displacement: Float[np.ndarray, "nodes 2"],
    *,
    loads: Float[np.ndarray, "nodes 2"],
    fixed: Bool[np.ndarray, "nodes 2"],
    max_iterations: int,
) -> tuple[Float[np.ndarray, "nodes 2"], tuple[float, ...]]:
    """Return the displacement at which the internal forces balance the loads."""
    free = np.flatnonzero(~fixed.ravel())
    scale = np.linalg.norm(loads.ravel()[free])
    residuals: list[float] = []
    for _ in range(max_iterations + 1):
        forces, stiffness = internal_forces(mesh, material, displacement)
        residual = (loads - forces).ravel()[free]
        residuals.append(float(np.linalg.norm(residual) / scale))
        if residuals[-1] < TOLERANCE:
            return displacement, tuple(residuals)
        if not np.isfinite(residuals[-1]):
            break
        correction = np.zeros(displacement.size)
        # The matrix is symmetric: ordering by A + A^T halves the fill of the default ordering.
        correction[free] = splu(stiffness[free][:, free], permc_spec="MMD_AT_PLUS_A").solve(
            residual
        )
        displacement = displacement + correction.reshape(displacement.shape)
    raise SolveFailed("hyperelastic equilibrium", len(residuals) - 1, residuals[-1], TOLERANCE)


def _assemble(mesh: QuadraticMesh, matrices: Float[np.ndarray, "elements 18 18"]) -> csc_array:
    """Return the sum of the element matrices."""
    unknowns = (2 * mesh.elements[:, :, None] + np.arange(2)).reshape(-1, 18)
    rows = np.repeat(unknowns, 18, axis=1).ravel()
    columns = np.tile(unknowns, 18).ravel()
    size = mesh.nodes.size
    return csc_array(coo_array((matrices.ravel(), (rows, columns)), shape=(size, size)))


def _deformation(
    mesh: QuadraticMesh,
    displacement: Float[np.ndarray, "nodes 2"],
    gradients: Float[np.ndarray, "elements points 9 2"],
) -> Float[np.ndarray, "elements points 2 2"]:
    """Return the deformation gradient F = 1 + du/dX."""
    return np.eye(2) + np.einsum("eni,epnj->epij", displacement[mesh.elements], gradients)


def _invariants(
    right_cauchy_green: Float[np.ndarray, "*p 2 2"],
) -> tuple[Float[np.ndarray, "*p"], Float[np.ndarray, "*p"]]:
    """Return the trace and the determinant."""
    trace = np.trace(right_cauchy_green, axis1=-2, axis2=-1)
    return trace, np.linalg.det(right_cauchy_green)


def _outer(
    first: Float[np.ndarray, "*p 2 2"], second: Float[np.ndarray, "*p 2 2"]
) -> Float[np.ndarray, "*p 2 2 2 2"]:
    """Return the dyadic product of two tensors at every point."""
    return first[..., :, :, None, None] * second[..., None, None, :, :]


def _scaled(
    factor: Float[np.ndarray, "*p"], tensor: Float[np.ndarray, "*p 2 2 2 2"]
) -> Float[np.ndarray, "*p 2 2 2 2"]:
    """Return a fourth-order tensor times a scalar at every point."""
    return factor[..., None, None, None, None] * tensor
