"""Darcy: from the permeability of a medium with two phases to the pressure in it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.solvers.finite_volumes.darcy import solve_darcy
from lsm_core.solvers.random_fields import (
    cosine_field_at_centres,
    cosine_field_modes,
    random_stream,
)


@dataclass(frozen=True, kw_only=True)
class Darcy(Benchmark):
    """-div(a grad u) = 1 in the unit square, u = 0 on its boundary; from a to u.

    `resolution` counts the cells that are solved along each side, of which every `stride`-th is
    stored; the published protocol is resolution 421 with stride 5. The same seed is the same
    medium at every resolution: one random field, thresholded at the centres of the cells.
    """

    name: ClassVar[str] = "darcy"
    title: ClassVar[str] = "Darcy"
    space: ClassVar[tuple[str, ...]] = ("x", "y")
    positions: ClassVar[Literal["cell centres"]] = "cell centres"

    resolution: int = 421
    stride: int = 1
    high_coefficient: float = 12.0
    low_coefficient: float = 3.0
    field_modes: int = 421
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("resolution", "field_modes"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2, got {getattr(self, name)}")
        if not 1 <= self.stride < self.resolution:
            raise ValueError(
                f"stride must be from 1 to {self.resolution - 1}, one less than the resolution, "
                f"got {self.stride}"
            )
        if not 0 < self.low_coefficient <= self.high_coefficient:
            raise ValueError(
                "low_coefficient must be positive and at most high_coefficient, got "
                f"{self.low_coefficient} and {self.high_coefficient}"
            )
        if not 0 < self.tolerance < 1:
            raise ValueError(f"tolerance must be between 0 and 1, got {self.tolerance}")

    def at_resolution(self, n_points: int) -> "Darcy":
        """Return the same media, solved and stored on another number of cells."""
        return replace(self, resolution=n_points, stride=1)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the coefficient and the pressure."""
        n_stored = len(self.coordinates["x"])
        return (
            Variable(
                name="coefficient",
                dims=("x", "y"),
                shape=(n_stored, n_stored),
                role="input",
                description="permeability of the medium",
            ),
            Variable(
                name="pressure",
                dims=("x", "y"),
                shape=(n_stored, n_stored),
                role="target",
                description="pressure of the fluid under a uniform source of 1",
            ),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the centres of the stored cells, which are cells of the grid that was solved."""
        centres = (np.arange(self.resolution)[:: self.stride] + 0.5) / self.resolution
        return dict.fromkeys(self.space, centres)

    def generate(self, seed: int) -> Sample:
        """Return one sample: the same for the same seed, on any machine and in any order."""
        coefficient = self.coefficient(seed)
        solution = solve_darcy(coefficient, np.ones_like(coefficient), tolerance=self.tolerance)
        stored = (slice(None, None, self.stride),) * len(self.space)
        return {
            "coefficient": coefficient[stored].astype(np.float32),
            "pressure": solution.pressure[stored].astype(np.float32),
        }

    def coefficient(self, seed: int) -> Float[np.ndarray, "*cell"]:
        """Return the medium: high where a draw from N(0, 9 (-Δ + 9)^-2) is not negative, else low.

        The factor 9 = 3² only sets the size of the draw, and has no effect after the threshold.
        """
        modes = cosine_field_modes(
            random_stream("darcy", seed),
            len(self.space),
            self.field_modes,
            scale=3.0,
            shift=9.0,
            power=2.0,
        )
        field = cosine_field_at_centres(modes, self.resolution)
        return np.where(field >= 0, self.high_coefficient, self.low_coefficient)
