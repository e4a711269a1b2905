"""Flow `lsm`: from nothing to a compared result."""

from typing import Any, get_args

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import CellsFailed
from flows.settings import Settings
from flows.tasks import at_most
from flows.train import train
from lsm_core.names import BenchmarkName, ModelName, PresetName


@flow(name="lsm", flow_run_name="benchmark-{preset}")
def lsm(
    preset: PresetName = "quick",
    benchmarks: list[BenchmarkName] | None = None,
    models: list[ModelName] | None = None,
    seeds: list[int] | None = None,
) -> dict[str, Any]:
    """Prepare the data, train every model on every benchmark, compare, and write the report.

    All benchmarks and models if none are named, seed 0 if none is given.
    """
    from flows.steps.cells import slots
    from flows.steps.report import write_report

    settings = Settings.from_environment()
    chosen_benchmarks = benchmarks or list(get_args(BenchmarkName))
    chosen_models = models or list(get_args(ModelName))
    chosen_seeds = seeds or [0]
    n_cells = len(chosen_benchmarks) * len(chosen_models) * len(chosen_seeds)
    at_once = slots(n_cells, settings.n_workers)
    results = train.with_options(task_runner=at_most(at_once))(
        chosen_benchmarks,
        chosen_models,
        preset,
        chosen_seeds,
        suite=f"benchmark-{preset}",
        threads=max(1, settings.n_workers // at_once),
    )
    report = write_report(results, settings.root)
    create_markdown_artifact(report.markdown, key="benchmark", description="Compared results")
    failures = [result for result in results if "error" in result]
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {len(results)} runs failed, the first with "
            f"{failures[0]['error']}; see {report.page}"
        )
    return {"results": results, "report": str(report.page)}
