"""The data of each preset: how fine, and how many samples.

Free of torch, so that preparing data starts fast. `paper` and `release` have the sizes of the
published files, with validation samples of their own beside them; `quick` is chosen so that all
eight take minutes to generate on two cores.
"""

from collections.abc import Sequence

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.navier_stokes import NavierStokes
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.names import BenchmarkName, PresetName


def data_plan(preset: PresetName, benchmark: BenchmarkName) -> DataPlan:
    """Return which samples a preset uses of a benchmark."""
    return DATA_PLANS[benchmark][preset]


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


def _plans(smoke: DataPlan, quick: DataPlan, published: DataPlan) -> dict[PresetName, DataPlan]:
    return {
        "smoke": smoke,
        "quick": quick,
        "matched": quick,
        "paper": published,
        "release": published,
    }


def _fast(benchmark: Benchmark, n_train: int, n_validation: int, n_test: int) -> DataPlan:
    """Return the plan of a problem that takes milliseconds a sample."""
    return DataPlan(benchmark=benchmark, n_train=n_train, n_validation=n_validation, n_test=n_test)


def _slow(benchmark: Benchmark, n_train: int, n_validation: int, n_test: int) -> DataPlan:
    """Return the plan of a problem that takes seconds a sample."""
    return DataPlan(
        benchmark=benchmark,
        n_train=n_train,
        n_validation=n_validation,
        n_test=n_test,
        samples_per_block=4,
        keep_each_sample=True,
    )


DATA_PLANS: dict[BenchmarkName, dict[PresetName, DataPlan]] = {
    # The paper takes Burgers from the FNO paper: 1000 samples to train on, 100 to test on. No
    # script for it was released. 256 points is the first resolution of its table.
    "burgers": _plans(
        _fast(Burgers(resolution=64), 40, 8, 16),
        _fast(Burgers(resolution=256), 400, 40, 100),
        _fast(Burgers(resolution=256), 1000, 100, 100),
    ),
    "darcy": _plans(
        _fast(Darcy(resolution=32), 16, 4, 4),
        _fast(Darcy(resolution=215, stride=5), 240, 30, 50),
        _fast(Darcy(resolution=421, stride=5), 1000, 100, 200),
    ),
    "navier_stokes": _plans(
        _slow(NavierStokes(resolution=16, solver_resolution=32), 12, 4, 4),
        _slow(NavierStokes(resolution=32, solver_resolution=64), 100, 10, 20),
        _slow(NavierStokes(), 1000, 100, 200),
    ),
    "elasticity_p": _plans(
        _fast(ElasticityPoints(), 16, 4, 4),
        _fast(ElasticityPoints(), 240, 30, 50),
        _fast(ElasticityPoints(), 1000, 100, 200),
    ),
    "elasticity_g": _plans(
        _fast(ElasticityGrid(), 16, 4, 4),
        _fast(ElasticityGrid(), 240, 30, 50),
        _fast(ElasticityGrid(), 1000, 100, 200),
    ),
    "plasticity": _plans(
        _slow(Plasticity(n_elements_x=20, n_elements_y=6, n_frames=16), 12, 2, 4),
        _slow(Plasticity(n_elements_x=50, n_elements_y=15), 40, 4, 8),
        _slow(Plasticity(), 900, 80, 80),
    ),
    "airfoil": _plans(
        _slow(Airfoil(n_wake=10, n_surface=24, n_normal=12), 12, 2, 4),
        _slow(Airfoil(n_wake=25, n_surface=60, n_normal=25), 100, 8, 16),
        _slow(Airfoil(), 1000, 100, 200),
    ),
    "pipe": _plans(
        _slow(Pipe(n_elements=8), 12, 2, 4),
        _slow(Pipe(n_elements=32), 160, 16, 20),
        _slow(Pipe(), 1000, 100, 200),
    ),
}
