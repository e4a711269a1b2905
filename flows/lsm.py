"""Flow `lsm`: from nothing to a compared result."""

from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import CellsFailed
from flows.matrix import run_side_by_side
from flows.official_data import on_official_data
from flows.parameters import Benchmarks, Models, Seeds
from flows.report_link import link_report
from flows.settings import Settings
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
    from flows.steps.cells import benchmark_cells
    from flows.steps.report import write_report
    from flows.steps.run_record import share_runs
    from flows.steps.stored_results import keep_failures, keep_suite, suite_name
    from flows.steps.training import open_tracking

    settings = Settings.from_environment()
    settings.require_usable()
    cells = benchmark_cells(preset, benchmarks, models, seeds or [0])
    suite = suite_name("benchmark", preset, official)
    cells, lost = on_official_data(cells, settings) if official else (cells, [])
    results = [*run_side_by_side(cells, settings, suite, register=True), *lost]
    keep_suite(settings.root, suite, [(cell.identity, "") for cell in cells])
    keep_failures(settings.root, suite, results)
    share_runs(open_tracking(settings.tracking_uri, settings.root), suite, results)
    report = write_report(results, settings.root)
    create_markdown_artifact(report.markdown, key="benchmark", description="Compared results")
    link_report(settings, report)
    failures = [result for result in results if "error" in result]
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {len(results)} runs failed, the first with "
            f"{failures[0]['error']}; see {report.page}"
        )
    return {"results": results, "report": str(report.page)}
