"""All benchmark problems, by name."""

from importlib.resources import files

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.names import BenchmarkName

BENCHMARKS: dict[BenchmarkName, type[Benchmark]] = {
    "burgers": Burgers,
}


def data_card(name: BenchmarkName) -> str:
    """Return the page that describes a benchmark's data, in Markdown."""
    return (files("lsm_core.benchmarks") / f"{name}.md").read_text(encoding="utf-8")
