"""Flow `train`: every combination of benchmark, model and seed, each once."""

from itertools import product
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import CellsFailed
from flows.matrix import run_cells
from flows.official_data import on_official_data
from flows.parameters import Benchmarks, Models, Positive, Seeds, TrainingSetting
from flows.settings import Settings
from flows.tasks import at_most
from lsm_core.names import PresetName


# One run at a time unless the caller, who knows the machine, gives a wider runner.
@flow(
    name="train",
    flow_run_name="train-{preset}",
    task_runner=at_most(1),
)
def train(
    benchmarks: Benchmarks,
    models: Models,
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    suite: str = "train",
    threads: Positive | None = None,
    ranks: Positive = 1,
    source: str | None = None,
    training: dict[TrainingSetting, Any] | None = None,
    frozen: list[str] | None = None,
    official: bool = False,
) -> list[dict[str, Any]]:
    """Train models on benchmarks, each on `threads` threads and `ranks` processes.

    With a `source`, the name of a benchmark or the identity of a finished run, training starts
    from the weights of the same model there, except that `frozen` parts stay fixed. `training`
    changes settings of the preset by name. If `official`, the samples are those of the published
    files, also for a source that is a benchmark; they are fetched and converted first, and
    LSM_MIRRORS is asked before their addresses. Finished runs are not repeated; a run that was cut
    off continues from its last checkpoint; one that fails does not stop the others.
    """
    from flows.steps.cells import chosen_cell
    from lsm_core.reporting.comparison import compare, markdown_table

    settings = Settings.from_environment()
    settings.require_usable()
    cells = [
        chosen_cell(preset, *names, source=source, training=training, frozen=frozen or [])
        for names in product(benchmarks, models, seeds or [0])
    ]
    cells, lost = on_official_data(cells, settings) if official else (cells, [])
    results = run_cells(
        cells, settings, suite, threads or settings.n_workers, ranks=ranks, register=True
    )
    results += lost
    page = markdown_table(compare(results))
    create_markdown_artifact(page, key="trained", description="Trained models")
    failures = [result for result in results if "error" in result]
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {len(results)} trainings failed, the first with "
            f"{failures[0]['error']}"
        )
    return results
