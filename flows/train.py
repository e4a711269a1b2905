"""Flow `train`: every combination of benchmark, model and seed, each once."""

from itertools import product
from typing import Any

from prefect import flow

from flows.engine.matrix import run_cells
from flows.engine.suite import Suite, finish_suite
from flows.parameters import Benchmarks, Models, Positive, Seeds, TrainingSetting
from flows.settings import current_settings
from lsm_core.names import PresetName


@flow(name="train", flow_run_name="train-{preset}")
def train(
    benchmarks: Benchmarks,
    models: Models,
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    threads: Positive | None = None,
    ranks: Positive = 1,
    source: str | None = None,
    training: dict[TrainingSetting, Any] | None = None,
    frozen: list[str] | None = None,
    official: bool = False,
) -> list[dict[str, Any]]:
    """Train models on benchmarks, one at a time, on `threads` threads and `ranks` processes.

    With a `source`, the name of a benchmark or the identity of a finished run, training starts
    from the weights of the same model there, except that `frozen` parts stay fixed. `training`
    changes settings of the preset by name. If `official`, the samples are those of the published
    files, also for a source that is a benchmark; they are fetched and converted first, and
    LSM_MIRRORS is asked before their addresses. Finished runs are not repeated; a run that was cut
    off continues from its last checkpoint; one that fails does not stop the others.
    """
    from flows.steps.training.cells import chosen_cell
    from lsm_core.reporting.comparison import compare
    from lsm_core.reporting.tables import comparison_table

    settings = current_settings()
    cells = [
        chosen_cell(preset, *names, source=source, training=training, frozen=frozen or [])
        for names in product(benchmarks, models, seeds or [0])
    ]
    suite = Suite(
        study="train",
        preset=preset,
        official=official,
        cells=cells,
        register=True,
        at_once=1,
        n_threads=threads,
        n_ranks=ranks,
    )
    outcomes = run_cells(suite, settings)
    table = comparison_table(compare(outcomes)).markdown()
    finish_suite(suite, outcomes, settings, table, with_report=False)
    return [outcome.to_plain() for outcome in outcomes]
