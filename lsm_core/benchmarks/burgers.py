"""Burgers: from the field at time 0 to the field at time 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi
from typing import Any, ClassVar, Literal

import numpy as np

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.solvers.random_fields import periodic_field_modes, random_stream
from lsm_core.solvers.spectral.burgers import solve_burgers

FINEST_RESOLUTION = 8192
# More samples at once gain nothing: the arrays of a time step then leave the cache.
N_SAMPLES_TOGETHER = 32


@dataclass(frozen=True, kw_only=True)
class Burgers(Benchmark):
    """u_t + u u_x = viscosity u_xx on a periodic interval; from u(0) to u(final_time).

    Lengths are in units of the period, so that x runs from 0 to 1 and the initial field, drawn on
    the unit circle, does not change with the period. The same seed is the same function at every
    resolution: a coarse field is every n-th value of the finest one.
    """

    name: ClassVar[str] = "burgers"
    title: ClassVar[str] = "Burgers"
    space: ClassVar[tuple[str, ...]] = ("x",)
    positions: ClassVar[Literal["periodic nodes"]] = "periodic nodes"

    resolution: int = 1024
    viscosity: float = 0.1
    period: float = 2 * pi
    final_time: float = 1.0
    solver_points: int = 384
    solver_steps: int = 200

    def __post_init__(self) -> None:
        if self.resolution < 2 or FINEST_RESOLUTION % self.resolution:
            raise ValueError(
                f"resolution must divide {FINEST_RESOLUTION} and be at least 2, "
                f"got {self.resolution}"
            )
        for name in ("viscosity", "period", "final_time"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not 4 <= self.solver_points <= FINEST_RESOLUTION:
            raise ValueError(
                f"solver_points must be from 4 to {FINEST_RESOLUTION}, got {self.solver_points}"
            )
        if self.solver_steps < 1:
            raise ValueError(f"solver_steps must be at least 1, got {self.solver_steps}")

    def at_resolution(self, n_points: int) -> "Burgers":
        """Return the same functions on another number of points."""
        return replace(self, resolution=n_points)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the field at time 0 and at the final time."""
        return (
            Variable(
                name="initial",
                dims=("x",),
                shape=(self.resolution,),
                role="input",
                description="velocity at time 0",
            ),
            Variable(
                name="final",
                dims=("x",),
                shape=(self.resolution,),
                role="target",
                description=f"velocity at time {self.final_time:g}",
            ),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return x as a fraction of the period; the right end is the left one and is left out."""
        return {"x": np.arange(self.resolution) / self.resolution}

    def generate(self, seed: int) -> Sample:
        """Return one sample: the same for the same seed, on any machine and in any order."""
        return self._solve([seed])[0]

    def generate_many(self, seeds: Sequence[int]) -> list[Sample]:
        """Return the samples of several seeds, solved together, each equal to the one alone."""
        return [
            sample
            for first in range(0, len(seeds), N_SAMPLES_TOGETHER)
            for sample in self._solve(seeds[first : first + N_SAMPLES_TOGETHER])
        ]

    def _solve(self, seeds: Sequence[int]) -> list[Sample]:
        initial = np.stack([initial_modes(seed) for seed in seeds])
        final = solve_burgers(
            initial,
            viscosity=self.viscosity,
            period=self.period,
            final_time=self.final_time,
            n_points=self.solver_points,
            n_steps=self.solver_steps,
        )
        stride = FINEST_RESOLUTION // self.resolution
        initial_values, final_values = (
            np.fft.irfft(modes, FINEST_RESOLUTION, norm="forward")[:, ::stride].astype(np.float32)
            for modes in (initial, final)
        )
        return [
            {"initial": before, "final": after}
            for before, after in zip(initial_values, final_values, strict=True)
        ]


def initial_modes(seed: int) -> np.ndarray[Any, np.dtype[np.complex128]]:
    """Return the Fourier modes of the initial field, from N(0, 625 (-Δ + 25)^-2) with zero mean."""
    generator = random_stream("burgers", seed)
    return periodic_field_modes(generator, 1, FINEST_RESOLUTION, scale=25.0, shift=25.0, power=2.0)
