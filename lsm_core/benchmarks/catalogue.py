"""All benchmark problems, by name."""

from importlib.resources import files

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.navier_stokes import NavierStokes
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity
from lsm_core.names import BenchmarkName

BENCHMARKS: dict[BenchmarkName, type[Benchmark]] = {
    "burgers": Burgers,
    "darcy": Darcy,
    "navier_stokes": NavierStokes,
    "elasticity_p": ElasticityPoints,
    "elasticity_g": ElasticityGrid,
    "plasticity": Plasticity,
    "airfoil": Airfoil,
    "pipe": Pipe,
}


def data_card(name: BenchmarkName) -> str:
    """Return the page that describes a benchmark's data, in Markdown."""
    return (files("lsm_core.benchmarks") / f"{name}.md").read_text(encoding="utf-8")
