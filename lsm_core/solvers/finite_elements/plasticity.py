"""Forging of a metal block by a rigid die: explicit dynamics of an elastic-plastic body.

The block [0, length] x [0, height] is a sheet in plane stress, clamped at the bottom and free at
its sides, on a rigid floor. A rigid, frictionless die touches its top at time 0 and moves down at
constant speed:

    density d2u/dt2 = div sigma,    sigma: von Mises plasticity, rotated with the material.

Space: four-node elements with one integration point, on the moving material (updated Lagrangian).
Time: central differences with lumped masses, a step below the time that a sound wave takes through
the smallest element. Contact is kinematic: a node that would enter the die is put on its surface.
Units are mm, s, t, and so N and MPa; forces and energies are per mm of the sheet's thickness.
"""

from dataclasses import dataclass, field
from math import ceil

import numpy as np
from jaxtyping import Float

from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.die import Die, DieProfile, hold_above_floor, push_below
from lsm_core.solvers.finite_elements.one_point_quads import (
    Body,
    ElementConstants,
    advance_nodes,
    gather_forces,
    strain_elements,
)
from lsm_core.solvers.finite_elements.return_mapping import (
    ElasticPlastic,
    YieldConstants,
    return_to_yield_surface,
)

# Share of the critical time step.
SAFETY = 0.9
# Hourglass control: the stiffness in Young's moduli (bending a square element has about 2), its
# limit in yield stresses (plastic bending has 1), and the damping in density times wave speed.
HOURGLASS_STIFFNESS = 0.05
HOURGLASS_LIMIT = 0.10
HOURGLASS_VISCOSITY = 0.1
# Elements that are pressed flat shorten the step: a run takes twice as many steps as the first step
# suggests. One that takes ten times as many is crushing an element.
MAX_STEPS_FACTOR = 10


@dataclass(frozen=True, kw_only=True)
class Forging:
    """What is forged, by which die, how far, how fast and on which mesh.

    Without the `floor` the bulging sides roll around the clamped corners to below y = 0, and a few
    elements there fold.
    """

    die: Die
    material: ElasticPlastic = field(default_factory=ElasticPlastic)
    length: float = 50.0
    height: float = 15.0
    n_elements: tuple[int, int] = (100, 30)
    stroke: float = 4.0
    speed: float = 3000.0
    n_frames: int = 20
    floor: bool = True


@dataclass(frozen=True, kw_only=True)
class Forged:
    """The block at equal times up to the end of the stroke, and the account of the energy.

    `die_force` is the mean of each interval between frames, in N per mm of thickness.
    """

    position: Float[np.ndarray, "frames x y 2"]
    die_force: Float[np.ndarray, " frames"]
    plastic_strain: Float[np.ndarray, "elements_x elements_y"]
    thickness: Float[np.ndarray, "elements_x elements_y"]
    external_work: float
    internal_work: float
    hourglass_work: float
    kinetic_energy: float
    n_steps: int

    @property
    def work_balance(self) -> float:
        """Return the work of the die over all that it went into."""
        absorbed = self.internal_work + self.hourglass_work + self.kinetic_energy
        return self.external_work / absorbed

    @property
    def n_folded(self) -> int:
        """Return how many elements have an angle of more than half a turn in the last frame.

        One integration point does not see it: the area as a whole stays positive.
        """
        last = self.position[-1]
        corners = [last[:-1, :-1], last[1:, :-1], last[1:, 1:], last[:-1, 1:]]
        folded = np.zeros(corners[0].shape[:2], dtype=bool)
        for number, corner in enumerate(corners):
            ahead, back = corners[(number + 1) % 4] - corner, corners[number - 1] - corner
            folded |= ahead[..., 0] * back[..., 1] - ahead[..., 1] * back[..., 0] < 0
        return int(folded.sum())

    @property
    def hourglass_fraction(self) -> float:
        """Return the work against hourglass modes over the work of the die."""
        return self.hourglass_work / self.external_work


def forge(problem: Forging) -> Forged:
    """Return the block as the die goes down.

    Raises SolveFailed when an element turns inside out or the time step goes to nothing.
    """
    run = _Run(problem)
    frames, forces = [], []
    for frame in range(1, problem.n_frames + 1):
        impulse_before = run.impulse
        run.advance_to(frame * run.interval)
        frames.append(np.moveaxis(run.body.position, 0, -1).copy())
        forces.append((run.impulse - impulse_before) / run.interval)
    kinetic = float((run.body.mass * run.body.velocity**2).sum() / 2)
    return Forged(
        position=np.stack(frames),
        die_force=np.array(forces),
        plastic_strain=run.body.plastic_strain,
        thickness=run.body.thickness,
        external_work=run.impulse * problem.speed,
        internal_work=run.internal_work,
        hourglass_work=run.hourglass_work,
        kinetic_energy=kinetic,
        n_steps=run.n_steps,
    )


class _Run:
    """One forging under way: the body, the time, and what has been spent."""

    def __init__(self, problem: Forging) -> None:
        material = problem.material
        self.problem = problem
        self.interval = problem.stroke / problem.speed / problem.n_frames
        self.body = _block_at_rest(problem)
        self.profile: DieProfile = problem.die.profile()
        self.yield_constants: YieldConstants = material.yield_constants
        self.element_constants = ElementConstants(
            float(material.young_modulus),
            float(material.poisson_ratio),
            HOURGLASS_STIFFNESS * material.young_modulus,
            HOURGLASS_LIMIT * material.yield_stress,
            HOURGLASS_VISCOSITY * material.density * material.wave_speed,
        )
        self.time = 0.0
        self.n_steps = 0
        self.impulse = 0.0
        self.internal_work = 0.0
        self.hourglass_work = 0.0
        spacing = np.array([problem.length, problem.height]) / problem.n_elements
        self.critical_step = float(spacing.prod() / np.hypot(*spacing)) / material.wave_speed
        self.max_steps = MAX_STEPS_FACTOR * ceil(
            self.interval * problem.n_frames / self.critical_step
        )
        self.previous_step = 0.0

    def advance_to(self, end: float) -> None:
        """Advance in equal shares of the time that is left, each below the critical step."""
        while (left := end - self.time) > 1e-12 * end:
            n_left = ceil(left / (SAFETY * self.critical_step))
            self._advance(left / n_left)

    def _advance(self, step: float) -> None:
        """Advance by one step of central differences; velocities stand between the positions."""
        body = self.body
        advance_nodes(body, (self.previous_step + step) / 2, step)
        self.time += step
        lowest = self.problem.height - self.problem.speed * self.time
        force = push_below(self.profile, lowest, body.position, body.velocity, body.mass, step)
        if self.problem.floor:
            hold_above_floor(body.position, body.velocity, step)
        work = strain_elements(body, step, self.element_constants)
        n_failures = return_to_yield_surface(
            body.stress, body.plastic_strain, body.thickness_strain, self.yield_constants
        )
        more_work, hourglass_work, smallest = gather_forces(body, step, self.element_constants)
        self.impulse -= force * step
        self.internal_work += work + more_work
        self.hourglass_work += hourglass_work
        self.previous_step = step
        self.n_steps += 1
        # Written so that it also catches a NaN.
        if n_failures or not smallest > 0 or self.n_steps > self.max_steps:
            done = self.time / (self.interval * self.problem.n_frames)
            raise SolveFailed("forging (share of the stroke left)", self.n_steps, 1 - done, 0.0)
        self.critical_step = float(np.sqrt(smallest)) / self.problem.material.wave_speed


def _block_at_rest(problem: Forging) -> Body:
    """Return the undeformed block, of thickness 1 and without stress."""
    n_x, n_y = problem.n_elements
    x = np.linspace(0.0, problem.length, n_x + 1)
    y = np.linspace(0.0, problem.height, n_y + 1)
    position = np.stack(np.meshgrid(x, y, indexing="ij"))
    element_mass = problem.material.density * problem.length * problem.height / (n_x * n_y)
    mass = np.zeros((n_x + 1, n_y + 1))
    for first, second in ((0, 0), (1, 0), (0, 1), (1, 1)):
        mass[first : first + n_x, second : second + n_y] += element_mass / 4
    return Body(
        position=position,
        velocity=np.zeros_like(position),
        force=np.zeros_like(position),
        mass=mass,
        stress=np.zeros((3, n_x, n_y)),
        strain_increment=np.zeros((3, n_x, n_y)),
        plastic_strain=np.zeros((n_x, n_y)),
        thickness_strain=np.zeros((n_x, n_y)),
        thickness=np.ones((n_x, n_y)),
        hourglass=np.zeros((2, n_x, n_y)),
    )
