"""A benchmark, a model and a study more, added to a copy of the sources as CONTRIBUTING.md says."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from lsm_core.names import BenchmarkName, ModelName, StudyName
from tests.end_to_end.local_stack import REPOSITORY, environment, run

BENCHMARK = '''
"""A wave that moves along a circle by a quarter of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.problems.sample import Sample
from lsm_core.problems.variable import Variable


@dataclass(frozen=True, kw_only=True)
class Advection(Benchmark):
    name: ClassVar[str] = "advection"
    title: ClassVar[str] = "Advection along a circle"
    space: ClassVar[tuple[str, ...]] = ("x",)
    positions: ClassVar[Literal["periodic nodes"]] = "periodic nodes"

    resolution: int = 16

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(
            Variable(name=name, dims=("x",), shape=(self.resolution,), role=role)
            for name, role in (("before", "input"), ("after", "target"))
        )

    @property
    def coordinates(self) -> Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]:
        return {"x": np.arange(self.resolution) / self.resolution}

    def generate(self, seed: int) -> Sample:
        phase = np.random.default_rng(seed).random()
        before = np.sin(2 * np.pi * (self.coordinates["x"] + phase)).astype(np.float32)
        return {"before": before, "after": np.roll(before, self.resolution // 4)}
'''
PROTOCOL = """
    "advection": Protocol(
        smoke=_fast(Advection(), 12, 4, 4),
        quick=_fast(Advection(), 40, 8, 8),
        published=_fast(Advection(resolution=64), 100, 10, 10),
    ),
}
"""
MODEL = '''
"""Two linear layers at every point."""

from dataclasses import dataclass

from torch import Tensor, nn

from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class PointwiseConfig:
    width: int = 8


class Pointwise(nn.Module):
    def __init__(self, config: PointwiseConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.first = nn.Linear(shape.n_inputs, config.width)
        self.last = nn.Linear(config.width, shape.n_outputs)

    def forward(self, field: Tensor) -> Tensor:
        return self.last(self.first(field).relu())


def preset(task: Task) -> PointwiseConfig:
    return task.choose(
        smoke=PointwiseConfig(),
        quick=PointwiseConfig(width=16),
        published=PointwiseConfig(width=64),
    )


MODEL = ModelEntry(config=PointwiseConfig, network=Pointwise, preset=preset)
'''
STUDY = """
    "points": Study(
        title="Where a point is enough",
        cells=lambda preset, seed: [
            Cell(setting=model, experiment=cells.experiment(preset, "advection", model, seed))
            for model in ("pointwise", "lsm")
        ],
    ),
}
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the packages with one more of everything."""
    folder = tmp_path_factory.mktemp("sources")
    for package in ("lsm_core", "storage", "flows"):
        shutil.copytree(REPOSITORY / package, folder / package)
    core = folder / "lsm_core"
    (core / "benchmarks/advection.py").write_text(BENCHMARK)
    (core / "benchmarks/advection.md").write_text("# Advection\n")
    (core / "models/pointwise.py").write_text(MODEL)
    protocols = core / "experiments/protocols.py"
    edit(protocols, "\n}\n", PROTOCOL)
    found = "from lsm_core.benchmarks.airfoil import Airfoil\n"
    edit(protocols, found, f"from lsm_core.benchmarks.advection import Advection\n{found}")
    edit(core / "studies/catalogue.py", '\n}\n"""In the order', f'{STUDY}"""In the order')
    for names, name in (
        (BenchmarkName, "advection"),
        (ModelName, "pointwise"),
        (StudyName, "points"),
    ):
        last = get_args(names)[-1]
        edit(core / "names.py", f'    "{last}",\n]', f'    "{last}",\n    "{name}",\n]')
    return folder


def edit(file: Path, found: str, replacement: str) -> None:
    text = file.read_text()
    assert text.count(found) == 1, f"{file} has {found!r} {text.count(found)} times"
    file.write_text(text.replace(found, replacement))


@pytest.mark.slow
def test_another_model_on_another_benchmark_is_trained_and_reported(
    sources: Path, tmp_path: Path
) -> None:
    settings = environment(tmp_path, PYTHONPATH=str(sources))
    chosen = ["--preset", "smoke", "--benchmarks", "advection", "--models", "pointwise"]
    done = run(["flows.cli", "benchmark", *chosen], settings, folder=sources)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("advection")]
    assert row[2] == "pointwise"
    report = (tmp_path / "reports/benchmark-smoke/report.md").read_text()
    assert "## Advection along a circle" in report
    assert "| advection | 12 (–) | 4 (–) | 16 (–) |" in report


ASKED = """
from flows.cli.main import main
from flows.errors import BadInput
from flows.steps.data.official import official_plan
from lsm_core.experiments.protocols import data_plan
from lsm_core.studies.catalogue import study_cells, study_of

cell, _ = study_cells("points", "smoke")
print(study_of("points").title, cell.experiment.model_name)
try:
    official_plan(data_plan("smoke", "advection"), [])
except BadInput as error:
    print(error)
main(["study", "--help"])
"""


def test_another_study_has_cells_and_help_and_another_benchmark_no_official_files(
    sources: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=sources,
        env=environment("unused", PYTHONPATH=str(sources)),
        capture_output=True,
        text=True,
        check=False,
    )
    title, official, *help_lines = done.stdout.splitlines()
    assert title == "Where a point is enough pointwise", done.stderr
    assert official == "there are no official files of advection; leave out --official"
    assert "points" in " ".join(help_lines)
