"""Four-node quadrilaterals with one integration point, for explicit dynamics on a block of them.

Arrays of nodes are (2, x, y) with element (i, j) between the nodes (i, j), (i + 1, j),
(i + 1, j + 1), (i, j + 1), numbered 1 to 4 below. All that one point sees follows from the two
diagonals e = p3 - p1 and f = p4 - p2: the area is e x f / 2, and the gradient of a velocity that
differs by de and df along them is [de df] [e f]^-1. The alternating motion that one point does not
see is held by the hourglass forces of Flanagan and Belytschko (1981).
"""

from typing import NamedTuple, no_type_check

import numpy as np
from numba import njit


class Body(NamedTuple):
    """The state of a block, changed in place by the compiled loops below.

    Nodes are (2, x, y), elements (..., x, y): stress (xx, yy, xy), hourglass forces (x, y).
    The strain increments are those of the present step.
    """

    position: np.ndarray
    velocity: np.ndarray
    force: np.ndarray
    mass: np.ndarray
    stress: np.ndarray
    strain_increment: np.ndarray
    plastic_strain: np.ndarray
    thickness_strain: np.ndarray
    thickness: np.ndarray
    hourglass: np.ndarray


class ElementConstants(NamedTuple):
    """Elasticity, and the hourglass control: force per displacement, per length, per velocity."""

    young_modulus: float
    poisson_ratio: float
    hourglass_stiffness: float
    hourglass_limit: float
    hourglass_viscosity: float


@njit(cache=True, error_model="numpy")
@no_type_check
def advance_nodes(body, velocity_step, position_step):
    """Accelerate the nodes by the internal forces and move them; the bottom row stands still."""
    for component in range(2):
        for i in range(body.mass.shape[0]):
            for j in range(1, body.mass.shape[1]):
                acceleration = -body.force[component, i, j] / body.mass[i, j]
                body.velocity[component, i, j] += velocity_step * acceleration
                body.position[component, i, j] += position_step * body.velocity[component, i, j]


@njit(cache=True, error_model="numpy")
@no_type_check
def strain_elements(body, step, constants):
    """Turn the stress with the material and add the elastic stress of the step.

    The velocity gradient is taken at the middle of the step, and the turn is that of Hughes and
    Winget (1980), so that a rigid rotation of any size strains nothing. What results is the trial
    stress of the return mapping. Returns half the work of the turned stress on the strain.
    """
    poisson = constants.poisson_ratio
    stiffness = constants.young_modulus / (1 - poisson * poisson)
    shear_modulus = constants.young_modulus / (2 * (1 + poisson))
    squeeze = -poisson / (1 - poisson)
    stress, increment = body.stress, body.strain_increment
    work = 0.0
    for i in range(stress.shape[1]):
        for j in range(stress.shape[2]):
            e_x, e_y, f_x, f_y = _diagonals(body.position, i, j)
            u_e, v_e, u_f, v_f = _diagonals(body.velocity, i, j)
            half = step / 2
            e_x, e_y, f_x, f_y = (
                e_x - half * u_e,
                e_y - half * v_e,
                f_x - half * u_f,
                f_y - half * v_f,
            )
            twice_area = e_x * f_y - e_y * f_x
            scale = step / twice_area
            strain_x = (f_y * u_e - e_y * u_f) * scale
            strain_y = (e_x * v_f - f_x * v_e) * scale
            u_by_y = (e_x * u_f - f_x * u_e) * scale
            v_by_x = (f_y * v_e - e_y * v_f) * scale
            shear = u_by_y + v_by_x

            t_x, t_y, t_xy = _turn(body, i, j, (v_by_x - u_by_y) / 4)
            volume = twice_area / 2 * body.thickness[i, j]
            work += volume / 2 * (t_x * strain_x + t_y * strain_y + t_xy * shear)
            stress[0, i, j] = t_x + stiffness * (strain_x + poisson * strain_y)
            stress[1, i, j] = t_y + stiffness * (strain_y + poisson * strain_x)
            stress[2, i, j] = t_xy + shear_modulus * shear
            body.thickness_strain[i, j] = squeeze * (strain_x + strain_y)
            increment[0, i, j], increment[1, i, j], increment[2, i, j] = strain_x, strain_y, shear
    return work


@njit(cache=True, error_model="numpy")
@no_type_check
def gather_forces(body, step, constants):
    """Set the internal forces of the stress and of the hourglass modes.

    Returns half the work of the stress on the strain, the work against the hourglass modes, and the
    smallest ratio of area to longest diagonal, squared: negative when an element is inside out.
    """
    force, stress, increment = body.force, body.stress, body.strain_increment
    force[:] = 0.0
    work, hourglass_work, smallest = 0.0, 0.0, np.inf
    for i in range(stress.shape[1]):
        for j in range(stress.shape[2]):
            e_x, e_y, f_x, f_y = diagonals = _diagonals(body.position, i, j)
            area = (e_x * f_y - e_y * f_x) / 2
            longest = max(e_x * e_x + e_y * e_y, f_x * f_x + f_y * f_y)
            smallest = min(smallest, area * abs(area) / longest)
            # The exponential to second order, the same on every machine.
            squeeze = body.thickness_strain[i, j] / 2
            body.thickness[i, j] *= (1 + squeeze) / (1 - squeeze)

            s_x, s_y, s_xy = stress[0, i, j], stress[1, i, j], stress[2, i, j]
            half = body.thickness[i, j] / 2
            work += (half * area) * (
                s_x * increment[0, i, j] + s_y * increment[1, i, j] + s_xy * increment[2, i, j]
            )
            on_e_x, on_e_y = half * (s_xy * f_x - s_x * f_y), half * (s_y * f_x - s_xy * f_y)
            on_f_x, on_f_y = half * (s_x * e_y - s_xy * e_x), half * (s_xy * e_y - s_y * e_x)
            q_x, q_y, along_e, along_f, lost = _resist_hourglass(
                body, i, j, diagonals, area, step, constants
            )
            hourglass_work += lost

            force[0, i, j] += on_e_x + q_x * (1 + along_e)
            force[1, i, j] += on_e_y + q_y * (1 + along_e)
            force[0, i + 1, j + 1] += -on_e_x + q_x * (1 - along_e)
            force[1, i + 1, j + 1] += -on_e_y + q_y * (1 - along_e)
            force[0, i + 1, j] += on_f_x - q_x * (1 - along_f)
            force[1, i + 1, j] += on_f_y - q_y * (1 - along_f)
            force[0, i, j + 1] += -on_f_x - q_x * (1 + along_f)
            force[1, i, j + 1] += -on_f_y - q_y * (1 + along_f)
    return work, hourglass_work, smallest


@njit(cache=True, error_model="numpy")
@no_type_check
def _diagonals(nodes, i, j):
    """Return the differences of a nodal field along the diagonals: e_x, e_y, f_x, f_y."""
    return (
        nodes[0, i + 1, j + 1] - nodes[0, i, j],
        nodes[1, i + 1, j + 1] - nodes[1, i, j],
        nodes[0, i, j + 1] - nodes[0, i + 1, j],
        nodes[1, i, j + 1] - nodes[1, i + 1, j],
    )


@njit(cache=True, error_model="numpy")
@no_type_check
def _alternating(nodes, component, i, j):
    """Return the sum of a nodal field with alternating signs around the element."""
    field = nodes[component]
    return field[i, j] - field[i + 1, j] + field[i + 1, j + 1] - field[i, j + 1]


@njit(cache=True, error_model="numpy")
@no_type_check
def _turn(body, i, j, tangent):
    """Turn the hourglass forces in place and return the turned stress.

    The angle is given by the tangent of its half.
    """
    scale = 1 / (1 + tangent * tangent)
    cosine, sine = (1 - tangent * tangent) * scale, 2 * tangent * scale
    q_x, q_y = body.hourglass[0, i, j], body.hourglass[1, i, j]
    body.hourglass[0, i, j] = cosine * q_x - sine * q_y
    body.hourglass[1, i, j] = sine * q_x + cosine * q_y
    s_x, s_y, s_xy = body.stress[0, i, j], body.stress[1, i, j], body.stress[2, i, j]
    exchange = sine * sine * (s_y - s_x) - 2 * sine * cosine * s_xy
    shear = (cosine * cosine - sine * sine) * s_xy + sine * cosine * (s_x - s_y)
    return s_x + exchange, s_y - exchange, shear


@njit(cache=True, error_model="numpy")
@no_type_check
def _resist_hourglass(body, i, j, diagonals, area, step, constants):
    """Advance the hourglass forces of one element.

    The hourglass rate is the alternating sum of velocities less what a linear field adds to it on
    an element that is no parallelogram. Returns a quarter of the forces, the shares of the
    diagonals that turn them into forces on the four nodes, and the work of the step.
    """
    e_x, e_y, f_x, f_y = diagonals
    u_e, v_e, u_f, v_f = _diagonals(body.velocity, i, j)
    skew_x, skew_y = _alternating(body.position, 0, i, j), _alternating(body.position, 1, i, j)
    along_e = (skew_x * f_y - skew_y * f_x) * (0.5 / area)
    along_f = (skew_y * e_x - skew_x * e_y) * (0.5 / area)
    rate_x = (_alternating(body.velocity, 0, i, j) - along_e * u_e - along_f * u_f) / 4
    rate_y = (_alternating(body.velocity, 1, i, j) - along_e * v_e - along_f * v_f) / 4

    thickness, side = body.thickness[i, j], np.sqrt(area)
    stiffness = constants.hourglass_stiffness * thickness * step
    limit = constants.hourglass_limit * thickness * side
    damping = constants.hourglass_viscosity * thickness * side
    q_x = min(max(body.hourglass[0, i, j] + stiffness * rate_x, -limit), limit)
    q_y = min(max(body.hourglass[1, i, j] + stiffness * rate_y, -limit), limit)
    body.hourglass[0, i, j], body.hourglass[1, i, j] = q_x, q_y
    q_x, q_y = q_x + damping * rate_x, q_y + damping * rate_y
    return q_x / 4, q_y / 4, along_e, along_f, step * (q_x * rate_x + q_y * rate_y)
