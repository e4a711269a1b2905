"""Flow `lsm`: from nothing to a compared result."""

from typing import Any

from prefect import flow

from flows.engine.cells import run_cells
from flows.engine.pool import cancel_cells
from flows.engine.run_names import named, some
from flows.engine.suite import Suite, finish_suite
from flows.engine.tries import A_MONTH, tried_once_more
from flows.parameters import Benchmarks, Device, Models, Seeds, Where
from flows.settings import current_settings
from lsm_core.names import Precision, PresetName


def _name(parameters: dict[str, Any]) -> str:
    models = some(parameters["models"], "all models")
    benchmarks = some(parameters["benchmarks"], "all problems")
    kind = "benchmark-official" if parameters["official"] else "benchmark"
    return f"{kind}-{parameters['preset']}: {models} on {benchmarks}"


@flow(
    name="lsm", flow_run_name=named(_name), on_cancellation=[cancel_cells], timeout_seconds=A_MONTH
)
@tried_once_more
def lsm(
    preset: PresetName = "quick",
    benchmarks: Benchmarks | None = None,
    models: Models | None = None,
    seeds: Seeds | None = None,
    official: bool = False,
    cells: Where = "here",
    precision: Precision | None = None,
    compile: bool = False,
    device: Device | None = None,
) -> dict[str, Any]:
    """Prepare the data, train every model on every benchmark, compare, and write the report.

    Args:
        preset: The size of data, models and training: smoke takes seconds a cell, quick minutes
            for all on a laptop, paper and release days of GPUs.
        benchmarks: The problems, own ones too; none named means all eight.
        models: The models; none named means all twenty-three, which makes 163 cells with all
            problems and one seed. A model that is not made for a problem is left out, unless it is
            asked for by name on that problem alone.
        seeds: One cell for each; none given means seed 0.
        official: Train on the published files, which are fetched and converted first (LSM_MIRRORS
            is asked before their addresses); the comparison is another one then.
        cells: Where cells train: `here`, in processes of this run; on the `pool` of cells, each a
            run of its own; `auto` takes the pool for presets that take longer than quick.
        precision: The numbers that products are made of: float32, tf32 or bfloat16, the latter two
            for GPUs; none given means the preset's. Such cells have a name of their own.
        compile: Let torch compile the models, for GPUs.
        device: What cells train on: cpu, cuda, cuda:1 or mps; none given means LSM_DEVICE where
            they train.

    """
    from flows.steps.data.given import problems_named
    from flows.steps.training.cells import benchmark_cells, computing, in_words

    settings, changes = current_settings(), computing(precision, compile)
    problems = problems_named(benchmarks, settings.root)
    wanted = benchmark_cells(preset, problems, models, seeds or [0], changes)
    suite = Suite(
        study="benchmark",
        preset=preset,
        official=official,
        cells=wanted,
        names=[in_words(changes)] * len(wanted) if changes else (),
        register=True,
        where=cells,
        device=device,
    )
    outcomes = run_cells(suite, settings)
    report = finish_suite(suite, outcomes, settings)
    return {
        "results": [outcome.to_plain() for outcome in outcomes],
        "report": str(report.page) if report else "",
    }
