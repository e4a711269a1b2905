"""Navier-Stokes: from ten snapshots of the vorticity to the next ten."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import sqrt
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Complex

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable
from lsm_core.solvers.random_fields import periodic_field_modes, random_stream
from lsm_core.solvers.spectral.navier_stokes import VorticityEquation, vorticity_at_unit_times

# Part of the law of the initial vorticity, not the resolution of a solve.
INITIAL_POINTS = 256


@dataclass(frozen=True, kw_only=True)
class NavierStokes(Benchmark):
    """w_t + u·grad w = viscosity Δw + f on the unit torus; from w at times 1 ... 10 to 11 ... 20.

    The force is force_amplitude (sin + cos)(2 pi (x + y)). The flow is solved on
    `solver_resolution` points a side, of which every n-th is stored, so that the same seed is the
    same flow at every `resolution`; a coarser solve is quicker and another flow.
    """

    name: ClassVar[str] = "navier_stokes"
    title: ClassVar[str] = "Navier-Stokes"
    space: ClassVar[tuple[str, ...]] = ("x", "y")
    positions: ClassVar[Literal["periodic nodes"]] = "periodic nodes"

    resolution: int = 64
    solver_resolution: int = 256
    viscosity: float = 1e-5
    force_amplitude: float = 0.1
    n_history: int = 10
    n_future: int = 10
    courant: float = 1.2
    precision: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        if self.solver_resolution < 8:
            raise ValueError(f"solver_resolution must be at least 8, got {self.solver_resolution}")
        if self.resolution < 2 or self.solver_resolution % self.resolution:
            raise ValueError(
                f"resolution must be at least 2 and divide solver_resolution, "
                f"got {self.resolution} and {self.solver_resolution}"
            )
        for name in ("n_history", "n_future"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("viscosity", "courant"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.precision not in ("float32", "float64"):
            raise ValueError(f"precision must be float32 or float64, got {self.precision}")

    def at_resolution(self, n_points: int) -> "NavierStokes":
        """Return the same flows stored on another number of points of the grid solved."""
        return replace(self, resolution=n_points)

    @property
    def n_steps(self) -> int:
        """Return the number of future frames: a model predicts one from the ten before it."""
        return self.n_future

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the vorticity of the past and of the future."""
        return (
            Variable(
                name="vorticity_history",
                dims=("x", "y", "history"),
                shape=(self.resolution, self.resolution, self.n_history),
                role="input",
                description=f"vorticity v_x - u_y at times 1 to {self.n_history}",
            ),
            Variable(
                name="vorticity_future",
                dims=("x", "y", "future"),
                shape=(self.resolution, self.resolution, self.n_future),
                role="target",
                description=f"vorticity v_x - u_y at the {self.n_future} unit times after those",
            ),
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the points of an axis, without the right end, and the times of the snapshots."""
        points = np.arange(self.resolution) / self.resolution
        times = np.arange(1.0, self.n_history + self.n_future + 1)
        return {
            "x": points,
            "y": points,
            "history": times[: self.n_history],
            "future": times[self.n_history :],
        }

    def generate(self, seed: int) -> Sample:
        """Return one sample: the same for the same seed, on any machine and in any order."""
        equation = VorticityEquation(
            n_points=self.solver_resolution,
            viscosity=self.viscosity,
            force=force_modes(self.force_amplitude),
            dtype=np.float32 if self.precision == "float32" else np.float64,
        )
        snapshots = vorticity_at_unit_times(equation, initial_modes(seed), self.courant)
        stride = self.solver_resolution // self.resolution
        vorticity = np.stack(
            [
                snapshot[::stride, ::stride].astype(np.float32)
                for snapshot in islice(snapshots, self.n_history + self.n_future)
            ],
            axis=-1,
        )
        return {
            "vorticity_history": np.ascontiguousarray(vorticity[..., : self.n_history]),
            "vorticity_future": np.ascontiguousarray(vorticity[..., self.n_history :]),
        }


def initial_modes(seed: int) -> Complex[np.ndarray, "mode_x mode_y"]:
    """Return the modes of the vorticity at time 0, from N(0, 2·7³ (-Δ + 49)^-2.5), zero mean."""
    generator = random_stream("navier_stokes", seed)
    return periodic_field_modes(
        generator, 2, INITIAL_POINTS, scale=sqrt(2) * 7**1.5, shift=49.0, power=2.5
    )


def force_modes(amplitude: float) -> Complex[np.ndarray, "mode_x mode_y"]:
    """Return the modes of amplitude (sin + cos)(2 pi (x + y))."""
    modes = np.zeros((4, 3), dtype=np.complex128)
    modes[1, 1] = amplitude * (0.5 - 0.5j)
    return modes
