"""The studies of the paper beside its main table, a flow each on one engine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import BadInput, CellsFailed
from flows.matrix import run_side_by_side
from flows.official_data import on_official_data
from flows.parameters import Benchmarks, Models, Positive, Rows, Seeds
from flows.report_link import link_report
from flows.settings import Settings
from lsm_core.names import BenchmarkName, ModelName, PresetName, StudyName

if TYPE_CHECKING:
    from lsm_core.experiments.study import Cell

Results = list[dict[str, Any]]


def run_study(
    name: StudyName,
    preset: PresetName,
    seeds: list[int] | None,
    models: list[ModelName] | None = None,
    rows: list[str] | None = None,
    benchmarks: list[BenchmarkName] | None = None,
    official: bool = False,
) -> Results:
    """Train the cells of a study inside a flow and return their results, each with its setting."""
    from lsm_core.experiments.study import study_cells

    try:
        cells = study_cells(name, preset, seeds or [0], models, rows, benchmarks)
    except ValueError as error:
        raise BadInput(str(error)) from error
    return _run(name, preset, cells, official)


def _run(name: str, preset: PresetName, cells: Sequence["Cell"], official: bool) -> Results:
    from flows.steps.cells import bound
    from flows.steps.report import write_full_report
    from flows.steps.run_record import share_runs
    from flows.steps.stored_results import keep_failures, keep_suite, suite_name
    from flows.steps.training import open_tracking
    from lsm_core.reporting.study import study_table

    settings = Settings.from_environment()
    settings.require_usable()
    experiments, names = [bound(c.experiment) for c in cells], [c.setting for c in cells]
    if official:
        experiments, lost = on_official_data(experiments, settings)
        if lost:
            raise CellsFailed(f"the study needs data that could not be had: {lost[0]['error']}")
    suite = suite_name(name, preset, official)
    found = run_side_by_side(experiments, settings, suite, names)
    # A cell that needs no other name is called as its model is.
    results = [{**result, "setting": result["setting"] or result["model"]} for result in found]
    called = [(c.identity, setting) for c, setting in zip(experiments, names, strict=True)]
    keep_suite(settings.root, suite, called)
    keep_failures(settings.root, suite, found)
    share_runs(open_tracking(settings.tracking_uri, settings.root), suite, found)
    create_markdown_artifact(study_table(results), key=name, description=f"Study {name}")
    if any("error" not in result for result in results):
        link_report(settings, write_full_report(settings.root, preset))
    failures = [result for result in results if "error" in result]
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {len(results)} runs failed, the first with {failures[0]['error']}"
        )
    return results


@flow(name="study", flow_run_name="{name}-{preset}")
def study(
    name: StudyName,
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    models: Models | None = None,
    rows: Rows | None = None,
    benchmarks: Benchmarks | None = None,
    official: bool = False,
) -> Results:
    """Run any study by its name, or some rows of it.

    `models` are for those that compare some, `benchmarks` for the ablations. If `official`, the
    data are the published files, as in flow `lsm`; a study of grids that they do not have is
    refused.
    """
    return run_study(name, preset, seeds, models, rows, benchmarks, official)


@flow(name="transfer", flow_run_name="transfer-{preset}")
def transfer(
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    models: Models | None = None,
    rows: Rows | None = None,
    official: bool = False,
) -> Results:
    """Train on parts of the airfoil samples, from scratch and from models of pipes.

    The models are those of the paper if none are named, the rows all of them; the samples are
    generated, or those of the published files if `official`.
    """
    return run_study("transfer", preset, seeds, models, rows, official=official)


@flow(name="resolutions", flow_run_name="resolutions-{benchmark}-{preset}")
def resolutions(
    benchmark: Literal["darcy", "burgers", "navier-stokes"],
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    models: Models | None = None,
    official: bool = False,
) -> Results:
    """Train on the same samples at several resolutions.

    The models are those of the paper's table of this benchmark if none are named. If `official`,
    every n-th point of the published files is taken; only those of Burgers have the resolutions.
    """
    names: dict[str, StudyName] = {
        "darcy": "resolutions-darcy",
        "burgers": "resolutions-burgers",
        "navier-stokes": "resolutions-navier-stokes",
    }
    return run_study(names[benchmark], preset, seeds, models, official=official)


@flow(name="ablations", flow_run_name="ablations-{preset}")
def ablations(
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    rows: Rows | None = None,
    benchmarks: Benchmarks | None = None,
    official: bool = False,
) -> Results:
    """Train LSM with parts replaced or left out: all rows of the tables, or some.

    If none are named, the benchmarks are the paper's seven at presets `paper` and `release`, and
    at smaller ones the two on which the paper replaces the solver, too.
    """
    return run_study(
        "ablations", preset, seeds, rows=rows, benchmarks=benchmarks, official=official
    )


@flow(name="hyperparameters", flow_run_name="hyperparameters-{preset}")
def hyperparameters(
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    rows: Rows | None = None,
    official: bool = False,
) -> Results:
    """Train LSM with other numbers of tokens, basis operators and scales: all rows, or some."""
    return run_study("hyperparameters", preset, seeds, rows=rows, official=official)


@flow(name="stability", flow_run_name="stability-{preset}")
def stability(
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    benchmarks: Benchmarks | None = None,
    models: Models | None = None,
    official: bool = False,
) -> Results:
    """Train LSM, or other models, on every benchmark from five seeds, or from those given."""
    from lsm_core.experiments.study import STABILITY_SEEDS, stability_cells

    try:
        cells = stability_cells(preset, seeds or STABILITY_SEEDS, benchmarks, models or ["lsm"])
    except ValueError as error:
        raise BadInput(str(error)) from error
    return _run("stability", preset, cells, official)


@flow(name="efficiency")
def efficiency(models: Models | None = None, sizes: list[Positive] | None = None) -> Results:
    """Measure what models cost on larger and larger grids: the paper's of both if none are named.

    What was measured before on this machine is taken from the store.
    """
    from flows.progress import current_progress
    from flows.steps.efficiency import failure_sentence, measure_efficiency
    from flows.steps.report import write_full_report
    from lsm_core.reporting.efficiency import efficiency_table, finished_costs

    settings = Settings.from_environment()
    settings.require_usable()
    costs = measure_efficiency(models, sizes, settings, current_progress())
    failures, done = failure_sentence(costs), finished_costs(costs)
    if done:
        link_report(settings, write_full_report(settings.root))
        create_markdown_artifact(
            f"```\n{efficiency_table(done)}\n```\n{failures}",
            key="efficiency",
            description="Cost of models",
        )
    if failures:
        raise CellsFailed(failures)
    return costs
