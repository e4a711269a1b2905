"""Plasticity: from the profile of a die to the block that it forges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.panel import Panel
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.solvers.convergence import SolveFailed
from lsm_core.solvers.finite_elements.die import Die, draw_die
from lsm_core.solvers.finite_elements.plasticity import Forged, Forging, forge
from lsm_core.solvers.finite_elements.return_mapping import ElasticPlastic
from lsm_core.solvers.random_fields import random_stream

# A run whose energy does not add up to this is no solution.
WORK_TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class Plasticity(Benchmark):
    """A metal block under a random die, in mm, s, t and MPa.

    Axis x of the arrays starts at `origin` and runs towards smaller x, axis y from the die down to
    the clamped bottom, as in the published data.
    """

    name: ClassVar[str] = "plasticity"
    title: ClassVar[str] = "Plasticity: forging by a random die"
    space: ClassVar[tuple[str, ...]] = ("x", "y", "time")
    positions: ClassVar[Literal["nodes"]] = "nodes"

    n_elements_x: int = 100
    n_elements_y: int = 30
    n_frames: int = 20
    length: float = 50.0
    height: float = 15.0
    origin: tuple[float, float] = (0.35, 14.9)
    n_knots: int = 8
    amplitude: float = 3.0
    stroke: float = 4.0
    speed: float = 3000.0
    young_modulus: float = 200e3
    poisson_ratio: float = 0.3
    yield_stress: float = 70.0
    hardening_modulus: float = 0.0
    density: float = 7.85e-9

    def __post_init__(self) -> None:
        if min(self.n_elements_x, self.n_elements_y, self.n_frames) < 1 or self.n_knots < 2:
            raise ValueError(
                f"a forging needs elements, frames and two knots, got {self.n_elements_x} x "
                f"{self.n_elements_y} elements, {self.n_frames} frames and {self.n_knots} knots"
            )
        if not 0 < self.stroke < self.height or self.speed <= 0 or self.amplitude < 0:
            raise ValueError(
                f"the stroke must be positive and below the height {self.height}, the speed "
                f"positive and the amplitude not negative, got {self.stroke}, {self.speed} and "
                f"{self.amplitude}"
            )

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the die, the motion of the block, and the account of the run."""
        n_x, n_y = self.n_elements_x + 1, self.n_elements_y + 1

        def parameter(name: str, unit: str, description: str, **axis: int) -> Variable:
            return Variable(
                name=name,
                dims=tuple(axis),
                shape=tuple(axis.values()),
                role="parameter",
                unit=unit,
                description=description,
            )

        return (
            Variable(
                name="die",
                dims=("x",),
                shape=(n_x,),
                role="input",
                unit="mm",
                description="height of the die above the block when it first touches it",
            ),
            Variable(
                name="state",
                dims=("x", "y", "time", "channel"),
                shape=(n_x, n_y, self.n_frames, 4),
                role="target",
                unit="mm",
                description="position x, y and displacement x, y of the material",
            ),
            parameter("knots", "mm", "heights drawn at equal distances", knot=self.n_knots),
            parameter("die_force", "N/mm", "mean since the last frame", time=self.n_frames),
            parameter("work_balance", "1", "work of the die over all it went into"),
            parameter("hourglass_fraction", "1", "work on hourglass modes over work of the die"),
            parameter("n_steps", "1", "number of time steps"),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the positions of the undeformed nodes and the times of the frames in s."""
        x, y = self.origin
        frames = np.linspace(0.0, self.stroke / self.speed, self.n_frames + 1)
        return {
            "x": x - np.linspace(0.0, self.length, self.n_elements_x + 1),
            "y": y - np.linspace(0.0, self.height, self.n_elements_y + 1),
            "time": frames[1:],
        }

    def panels(self, sample: Sample) -> list[Panel]:
        """Return the die, and the last frame of the deformed block coloured by displacement."""
        x, y, *displacement = np.moveaxis(sample["state"][:, :, -1], -1, 0)
        return [
            Panel(title="die", positions=(self.coordinates["x"],), values=sample["die"], unit="mm"),
            Panel(
                title="displacement",
                positions=(x, y),
                values=np.hypot(*displacement),
                unit="mm",
            ),
        ]

    def generate(self, seed: int) -> Sample:
        """Return one forging.

        Raises SolveFailed if its energy does not add up to 1 %, or if it ends with folded elements.
        """
        die = draw_die(
            random_stream("plasticity", seed),
            n_knots=self.n_knots,
            amplitude=self.amplitude,
            length=self.length,
        )
        forged = forge(self.forging(die))
        imbalance = abs(forged.work_balance - 1)
        if not imbalance < WORK_TOLERANCE:
            raise SolveFailed("work balance of forging", forged.n_steps, imbalance, WORK_TOLERANCE)
        n_folded = float(forged.n_folded)
        if n_folded:
            raise SolveFailed("forging (folded elements)", forged.n_steps, n_folded, 0.0)
        arrays = {
            "die": die.height(np.linspace(0.0, self.length, self.n_elements_x + 1)),
            "state": self.state(forged),
            "knots": die.heights,
            "die_force": forged.die_force,
            "work_balance": np.array(forged.work_balance),
            "hourglass_fraction": np.array(forged.hourglass_fraction),
            "n_steps": np.array(forged.n_steps),
        }
        return {name: values.astype(np.float32) for name, values in arrays.items()}

    def forging(self, die: Die) -> Forging:
        """Return the mechanical problem for one die."""
        return Forging(
            die=die,
            material=ElasticPlastic(
                young_modulus=self.young_modulus,
                poisson_ratio=self.poisson_ratio,
                yield_stress=self.yield_stress,
                hardening_modulus=self.hardening_modulus,
                density=self.density,
            ),
            length=self.length,
            height=self.height,
            n_elements=(self.n_elements_x, self.n_elements_y),
            stroke=self.stroke,
            speed=self.speed,
            n_frames=self.n_frames,
        )

    def state(self, forged: Forged) -> Float[np.ndarray, "x y time 4"]:
        """Return position and displacement with the axes and the origin of the published data."""
        # The solver counts y upwards and x to the right: turn both axes of the plane about.
        from_corner = forged.position[:, :, ::-1] - np.array([0.0, self.height])
        position = np.array(self.origin) + from_corner * np.array([-1.0, 1.0])
        position = np.moveaxis(position, 0, 2)  # (x, y, time, 2)
        undeformed = np.stack(
            np.meshgrid(self.coordinates["x"], self.coordinates["y"], indexing="ij"), axis=-1
        )
        return np.concatenate([position, position - undeformed[:, :, None]], axis=-1)
