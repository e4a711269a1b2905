"""Flow `train`: every combination of benchmark, model and seed, each once."""

from itertools import product
from typing import Any

from prefect import flow

from flows.engine.cells import run_cells
from flows.engine.pool import cancel_cells
from flows.engine.run_names import named
from flows.engine.suite import Suite, finish_suite
from flows.engine.tries import A_MONTH, tried_once_more
from flows.parameters import Benchmarks, Device, Models, Positive, Seeds, TrainingSetting, Where
from flows.settings import current_settings
from lsm_core.names import PresetName


def _name(parameters: dict[str, Any]) -> str:
    models, benchmarks = ", ".join(parameters["models"]), ", ".join(parameters["benchmarks"])
    return f"train-{parameters['preset']}: {models} on {benchmarks}"


@flow(
    name="train",
    flow_run_name=named(_name),
    on_cancellation=[cancel_cells],
    timeout_seconds=A_MONTH,
)
@tried_once_more
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
    cells: Where = "here",
    device: Device | None = None,
) -> list[dict[str, Any]]:
    """Train models on benchmarks, one at a time here, or all at once on the pool of cells.

    Finished runs are not repeated; a run that was cut off continues from its last checkpoint; one
    that fails does not stop the others.

    Args:
        benchmarks: The problems.
        models: The models; each is trained on each problem.
        preset: The size of data, models and training: smoke, quick, paper or release.
        seeds: One run for each; none given means seed 0.
        threads: Of each training here; none given means all.
        ranks: Processes that train one model together, here.
        source: The name of a problem, the identity of a finished run, or a registered model such
            as airfoil@champion: training starts from the weights of the same model there, as far
            as they suit. None means from random weights.
        training: Settings of the preset to change, by name: epochs, learning_rate, batch_size, ...
        frozen: Parts of a model that starts from a source, by name, that stay as they are.
        official: Train on the published files, which are fetched and converted first; also for a
            source that is a problem. LSM_MIRRORS is asked before their addresses.
        cells: Where runs train: `here`, in processes of this run; on the `pool` of cells, each a
            run of its own; `auto` takes the pool for presets that take longer than quick.
        device: What runs train on: cpu, cuda, cuda:1 or mps; none given means LSM_DEVICE where they
            train.

    """
    from flows.steps.data.given import problems_named
    from flows.steps.training.cells import chosen_cell
    from flows.steps.training.starting import named_source

    settings = current_settings()
    begun = {model: named_source(source, model, settings) for model in models}
    wanted = [
        chosen_cell(
            preset,
            *names,
            source=begun[names[1]][0],
            like=begun[names[1]][1],
            training=training,
            frozen=frozen or [],
        )
        for names in product(problems_named(benchmarks, settings.root) or (), models, seeds or [0])
    ]
    suite = Suite(
        study="train",
        preset=preset,
        official=official,
        cells=wanted,
        register=True,
        where=cells,
        at_once=1,
        n_threads=threads,
        n_ranks=ranks,
        device=device,
    )
    outcomes = run_cells(suite, settings)
    finish_suite(suite, outcomes, settings, with_report=False)
    return [outcome.to_plain() for outcome in outcomes]
