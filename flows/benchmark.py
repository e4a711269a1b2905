"""Flow `lsm`: from nothing to a compared result."""

from typing import Any

from prefect import flow

from flows.engine.matrix import run_cells
from flows.engine.suite import Suite, finish_suite
from flows.parameters import Benchmarks, Models, Seeds
from flows.settings import current_settings
from lsm_core.names import PresetName


@flow(name="lsm", flow_run_name="benchmark-{preset}")
def lsm(
    preset: PresetName = "quick",
    benchmarks: Benchmarks | None = None,
    models: Models | None = None,
    seeds: Seeds | None = None,
    official: bool = False,
) -> dict[str, Any]:
    """Prepare the data, train every model on every benchmark, compare, and write the report.

    All benchmarks and models if none are named, seed 0 if none is given. A model that is not made
    for a benchmark is left out, unless it is asked for by name on that benchmark alone. If
    `official`, the data are the published files, which are fetched and converted first
    (LSM_MIRRORS is asked before their addresses); the suite is another one then.
    """
    from flows.steps.training.cells import benchmark_cells

    settings = current_settings()
    cells = benchmark_cells(preset, benchmarks, models, seeds or [0])
    suite = Suite(study="benchmark", preset=preset, official=official, cells=cells, register=True)
    outcomes = run_cells(suite, settings)
    report = finish_suite(suite, outcomes, settings)
    return {
        "results": [outcome.to_plain() for outcome in outcomes],
        "report": str(report.page) if report else "",
    }
