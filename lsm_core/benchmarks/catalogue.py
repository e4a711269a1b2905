"""All benchmark problems, by name: those that the files of this package define."""

from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import get_args

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.names import BenchmarkName

PACKAGE = "lsm_core.benchmarks"


def data_card(name: BenchmarkName) -> str:
    """Return the page that describes a benchmark's data, in Markdown."""
    return (files(PACKAGE) / f"{name}.md").read_text(encoding="utf-8")


def _defined() -> Iterator[type[Benchmark]]:
    """Yield every problem that has a name."""
    for module in iter_modules(import_module(PACKAGE).__path__, f"{PACKAGE}."):
        if module.name != __name__:
            kinds = vars(import_module(module.name)).values()
            yield from (
                kind
                for kind in kinds
                if isinstance(kind, type) and issubclass(kind, Benchmark) and "name" in vars(kind)
            )


_BY_NAME = {kind.name: kind for kind in _defined()}

BENCHMARKS: dict[BenchmarkName, type[Benchmark]] = {
    name: _BY_NAME[name] for name in get_args(BenchmarkName)
}
