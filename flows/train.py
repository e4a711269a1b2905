"""Flow `train`: every combination of benchmark, model and seed, each once."""

from itertools import product
from typing import Any

from prefect import flow
from prefect.futures import wait

from flows.prepare import prepare
from flows.settings import Settings
from flows.tasks import at_most, train_cell
from lsm_core.names import BenchmarkName, ModelName, PresetName


# One run at a time unless the caller, who knows the machine, gives a wider runner.
@flow(
    name="train",
    flow_run_name="train-{preset}",
    task_runner=at_most(1),
)
def train(
    benchmarks: list[BenchmarkName],
    models: list[ModelName],
    preset: PresetName = "quick",
    seeds: list[int] | None = None,
    suite: str = "train",
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Train models on benchmarks, each on `threads` threads, and return the results.

    Finished runs are not repeated; a run that was cut off continues from its last checkpoint. A run
    that fails does not stop the others: its result has an `error` instead of figures.
    """
    from flows.steps.cells import cell, failed, is_finished, workplace
    from flows.steps.training import open_tracking

    settings = Settings.from_environment()
    datasets = prepare(benchmarks, preset)
    open_tracking(settings.tracking_uri, settings.root)  # once, before several processes want it
    futures = {}
    for names in product(benchmarks, models, seeds or [0]):
        experiment = cell(preset, *names)
        place = workplace(settings, datasets[names[0]], suite, threads or settings.n_workers)
        # The cache knows only its own files; what counts is the result in the store.
        run = train_cell.with_options(refresh_cache=not is_finished(experiment, place))
        futures[experiment] = run.submit(experiment, place)
    wait(list(futures.values()))
    return [
        future.result()
        if future.state.is_completed()
        else failed(experiment, future.result(raise_on_failure=False))
        for experiment, future in futures.items()
    ]
