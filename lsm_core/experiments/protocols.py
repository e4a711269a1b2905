"""How each benchmark is run: its data in every preset, and how it is trained on.

A protocol belongs to its benchmark, but does not lie in the benchmark's file: datasets are named by
the sources that made them, and another number of epochs would make them anew.

Free of torch, so that preparing data starts fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.given import GivenProblem
from lsm_core.benchmarks.navier_stokes import NavierStokes
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.experiments.plans import (
    AddedSamples,
    DataPlan,
    GivenPlan,
    OfficialPlan,
    benchmark_from_plain,
    extended,
)
from lsm_core.names import BenchmarkName, PresetName, Scheme

Schemes = tuple[Scheme, Scheme]
"""How inputs and targets are scaled."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Which samples of a benchmark are used, and how models are trained on them.

    `published` has the sizes of the published files, with validation samples of its own beside
    them; `quick` is chosen so that all benchmarks take minutes to generate on two cores.
    """

    smoke: DataPlan
    quick: DataPlan
    published: DataPlan
    quick_epochs: int = 6
    """Half a minute to two on one core for most models."""
    quick_modes: int | tuple[int, ...] | None = None
    """Fourier modes along the axes at preset quick, where its grid has no room for the usual."""
    night: DataPlan | None = None
    """The grid of quick with as many samples as the solver has in a fair time; quick's if None."""
    night_epochs: int = 20
    """Meant to be ten minutes on one core, by the seconds that a step takes at quick."""
    scaled: Schemes = ("none", "none")
    """Scales of the presets `paper` and `release`: the released choice."""
    scaled_small: Schemes = ("channel", "pointwise")
    """Scales of the small presets. With targets scaled point by point a model starts at their mean,
    from where it learns faster. Inputs are not: where a few samples agree by chance, another would
    be far out of range."""
    released_rate: float = 1e-3
    """Learning rate that the released script starts at."""
    released_width: int = 32
    """First width of LSM in the released script."""
    has_mesh: bool = False
    """Whether the input is the positions of the nodes of a mesh."""

    @property
    def plans(self) -> Mapping[PresetName, DataPlan]:
        """Return the data of every preset."""
        return {
            "smoke": self.smoke,
            "quick": self.quick,
            "matched": self.quick,
            "night": self.night or self.quick,
            "paper": self.published,
            "release": self.published,
        }

    @property
    def is_periodic(self) -> bool:
        """Return whether the last point of each axis is the neighbour of the first."""
        return self.published.benchmark.positions == "periodic nodes"

    @property
    def is_scattered(self) -> bool:
        """Return whether fields stand on points in no order, not on a grid."""
        return self.published.benchmark.positions == "scattered points"

    @property
    def differs_in_points(self) -> bool:
        """Return whether samples differ in their number of points, or points in weight."""
        problem = self.published.benchmark
        return isinstance(problem, GivenProblem) and problem.has_weight

    @property
    def point_axes(self) -> int:
        """Return the number of coordinates of scattered points."""
        problem = self.published.benchmark
        return problem.n_position_axes if isinstance(problem, GivenProblem) else 2

    @property
    def steps_through_time(self) -> bool:
        """Return whether frames are predicted one from those before it."""
        return self.published.benchmark.n_steps > 1


Problem = BenchmarkName | Protocol
"""A benchmark by its name, or how a problem is run that has a name only in a store."""


def protocol_of(problem: Problem) -> Protocol:
    """Return how a problem is run; ValueError for a name that no benchmark has."""
    if isinstance(problem, Protocol):
        return problem
    if problem not in PROTOCOLS:
        raise ValueError(f"there is no benchmark {problem!r}; known are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[problem]


def data_plan(preset: PresetName, benchmark: Problem) -> DataPlan:
    """Return which samples a preset uses of a benchmark."""
    return protocol_of(benchmark).plans[preset]


def given_protocol(plan: GivenPlan) -> Protocol:
    """Return how a problem that somebody brought is run.

    Small presets take the first samples and so many epochs that there are some thousand steps.
    """
    problem = plan.benchmark
    assert isinstance(problem, GivenProblem)

    def first(n_train: int, n_others: int) -> DataPlan:
        return replace(
            plan,
            n_train=min(n_train, plan.n_train),
            n_validation=min(n_others, plan.n_validation),
            n_test=min(n_others, plan.n_test),
        )

    quick, night = first(GIVEN_QUICK, GIVEN_QUICK // 5), first(GIVEN_NIGHT, GIVEN_NIGHT // 5)

    def epochs(n_steps: int, n_train: int, most: int) -> int:
        return max(6, min(most, n_steps * BATCH // max(1, n_train)))

    # Where a point is the same in all samples it has scales of its own; positions that are no grid
    # go into the unit cube, where models on points want them.
    inputs: Scheme = "box" if problem.positions == "scattered points" else "channel"
    scales: Schemes = (inputs, "pointwise" if problem.same_points else "channel")
    sizes = problem.shape.space
    return Protocol(
        smoke=first(16, 4),
        quick=quick,
        night=night,
        published=plan,
        quick_epochs=epochs(GIVEN_STEPS, quick.n_train, 100),
        night_epochs=epochs(GIVEN_NIGHT_STEPS, night.n_train, 200),
        quick_modes=tuple(min(16 if len(sizes) == 1 else 12, max(1, n // 2)) for n in sizes)
        if problem.positions != "scattered points"
        else None,
        scaled=scales,
        scaled_small=scales,
    )


BATCH = 4
"""Samples a step at presets quick and night: with few epochs, steps are what is short."""
GIVEN_QUICK, GIVEN_STEPS = 1000, 3000
"""Of problems that somebody brought at preset quick: training samples and steps."""
GIVEN_NIGHT, GIVEN_NIGHT_STEPS = 5000, 12000
"""The same at preset night."""


def plan_from_plain(plain: Mapping[str, Any], preset: PresetName) -> DataPlan:
    """Return the plan of any kind that `to_plain` wrote.

    How its samples are cut into blocks is that of the preset: it changes none of them.
    """
    benchmark = benchmark_from_plain(plain)
    sizes = plain["split_sizes"]
    added = tuple(AddedSamples(**each) for each in plain.get("added", []))
    plan: DataPlan
    if "given" in plain:
        plan = GivenPlan(benchmark=benchmark, n_train=0, n_validation=0, n_test=0, **plain["given"])
    else:
        plan = data_plan(preset, plain["benchmark"])
    plan = replace(
        plan,
        benchmark=benchmark,
        n_train=sizes["train"] - sum(each.n_samples for each in added),
        n_validation=sizes["validation"],
        n_test=sizes["test"],
    )
    if "official" in plain:
        plan = OfficialPlan(**{**vars(plan), **plain["official"]})
    return extended(plan, added)


def variants(
    preset: PresetName, names: Sequence[BenchmarkName], resolutions: Sequence[int] = ()
) -> dict[str, DataPlan]:
    """Return plans by name: those of the preset, or at each resolution if some are given."""
    plans: dict[str, DataPlan] = {name: data_plan(preset, name) for name in names}
    if not resolutions:
        return plans
    return {
        f"{name} at {n_points}": plan.at_resolution(n_points)
        for name, plan in plans.items()
        for n_points in resolutions
    }


def _fast(benchmark: Benchmark, n_train: int, n_validation: int, n_test: int) -> DataPlan:
    """Return the plan of a problem that takes milliseconds a sample."""
    return DataPlan(benchmark=benchmark, n_train=n_train, n_validation=n_validation, n_test=n_test)


def _slow(benchmark: Benchmark, n_train: int, n_validation: int, n_test: int) -> DataPlan:
    """Return the plan of a problem that takes seconds a sample."""
    plan = _fast(benchmark, n_train, n_validation, n_test)
    return replace(plan, samples_per_block=4, keep_each_sample=True)


PROTOCOLS: dict[BenchmarkName, Protocol] = {
    # The paper takes Burgers from the FNO paper: 1000 samples to train on, 100 to test on. No
    # script for it was released. 256 points is the first resolution of its table.
    "burgers": Protocol(
        smoke=_fast(Burgers(resolution=64), 40, 8, 16),
        quick=_fast(Burgers(resolution=256), 400, 40, 100),
        night=_fast(Burgers(resolution=256), 1000, 100, 200),
        night_epochs=30,
        published=_fast(Burgers(resolution=256), 1000, 100, 100),
        quick_epochs=15,
        scaled_small=("none", "none"),
    ),
    "darcy": Protocol(
        smoke=_fast(Darcy(resolution=32), 16, 4, 4),
        quick=_fast(Darcy(resolution=215, stride=5), 240, 30, 50),
        night=_fast(Darcy(resolution=215, stride=5), 1000, 100, 200),
        published=_fast(Darcy(resolution=421, stride=5), 1000, 100, 200),
        scaled=("pointwise", "pointwise"),
        scaled_small=("pointwise", "pointwise"),
        released_rate=5e-4,
        released_width=64,
    ),
    "navier_stokes": Protocol(
        smoke=_slow(NavierStokes(resolution=16, solver_resolution=32), 12, 4, 4),
        quick=_slow(NavierStokes(resolution=32, solver_resolution=64), 100, 10, 20),
        night=_slow(NavierStokes(resolution=32, solver_resolution=64), 300, 30, 60),
        night_epochs=8,
        published=_slow(NavierStokes(), 1000, 100, 200),
        scaled_small=("none", "none"),
        released_rate=5e-4,
        released_width=64,
    ),
    "elasticity_p": Protocol(
        smoke=_fast(ElasticityPoints(), 16, 4, 4),
        quick=_fast(ElasticityPoints(), 240, 30, 50),
        night=_fast(ElasticityPoints(), 1000, 100, 200),
        night_epochs=15,
        published=_fast(ElasticityPoints(), 1000, 100, 200),
        quick_epochs=8,
        # Scattered points are in no order, and their positions stay where they are.
        scaled_small=("none", "channel"),
        released_rate=5e-4,
    ),
    "elasticity_g": Protocol(
        smoke=_fast(ElasticityGrid(), 16, 4, 4),
        quick=_fast(ElasticityGrid(), 240, 30, 50),
        night=_fast(ElasticityGrid(), 1000, 100, 200),
        published=_fast(ElasticityGrid(), 1000, 100, 200),
        quick_epochs=8,
    ),
    "plasticity": Protocol(
        smoke=_slow(Plasticity(n_elements_x=20, n_elements_y=6, n_frames=16), 12, 2, 4),
        quick=_slow(Plasticity(n_elements_x=50, n_elements_y=15), 40, 4, 8),
        night=_slow(Plasticity(n_elements_x=50, n_elements_y=15), 200, 20, 40),
        night_epochs=10,
        published=_slow(Plasticity(), 900, 80, 80),
        quick_epochs=14,
        quick_modes=(8, 4, 6),
        scaled=("pointwise", "pointwise"),
        scaled_small=("pointwise", "pointwise"),
        released_rate=5e-4,
    ),
    "airfoil": Protocol(
        smoke=_slow(Airfoil(n_wake=10, n_surface=24, n_normal=12), 12, 2, 4),
        quick=_slow(Airfoil(n_wake=25, n_surface=60, n_normal=25), 100, 8, 16),
        night=_slow(Airfoil(n_wake=25, n_surface=60, n_normal=25), 500, 50, 100),
        night_epochs=12,
        published=_slow(Airfoil(), 1000, 100, 200),
        quick_epochs=16,
        # The mesh reaches so far that the shape is invisible beside it: without scales of its own
        # at each point no model gets below the error of the mean in a short training.
        scaled_small=("pointwise", "pointwise"),
        has_mesh=True,
    ),
    "pipe": Protocol(
        smoke=_slow(Pipe(n_elements=8), 12, 2, 4),
        quick=_slow(Pipe(n_elements=32), 160, 16, 20),
        night=_slow(Pipe(n_elements=32), 500, 50, 100),
        night_epochs=12,
        published=_slow(Pipe(), 1000, 100, 200),
        released_width=48,
        has_mesh=True,
    ),
}
