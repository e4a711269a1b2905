"""Flow `study`: any study beside the main table, by its name; and what models cost."""

from dataclasses import replace
from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.engine.cells import run_cells
from flows.engine.pool import cancel_cells
from flows.engine.run_names import named
from flows.engine.suite import Suite, finish_suite, link_report
from flows.engine.tries import A_MONTH, tried_once_more
from flows.errors import CellsFailed
from flows.parameters import Benchmarks, Device, Models, Positive, Rows, Seeds, Where
from flows.settings import current_settings
from lsm_core.names import Precision, PresetName, StudyName

Results = list[dict[str, Any]]


def _name(parameters: dict[str, Any]) -> str:
    words = [f"{parameters['name']}-{parameters['preset']}"]
    words += [", ".join(parameters[name]) for name in ("models", "rows") if parameters[name]]
    return ": ".join(words[:2])


@flow(
    name="study",
    flow_run_name=named(_name),
    on_cancellation=[cancel_cells],
    timeout_seconds=A_MONTH,
)
@tried_once_more
def study(
    name: StudyName,
    preset: PresetName = "quick",
    seeds: Seeds | None = None,
    models: Models | None = None,
    rows: Rows | None = None,
    benchmarks: Benchmarks | None = None,
    official: bool = False,
    cells: Where = "here",
    precision: Precision | None = None,
    compile: bool = False,
    device: Device | None = None,
) -> Results:
    """Run any study by its name, or some rows of it, and return what came of each cell.

    Args:
        name: The study; each is a table or a figure of the paper.
        preset: The size of data, models and training: smoke, quick, paper or release.
        seeds: One cell for each; none given means seed 0, and five seeds for stability.
        models: For studies that compare models; none named means the paper's.
        rows: Some rows of the study's table, by their names; none named means all.
        benchmarks: For stability, all if none are named; for ablations, where none named means the
            paper's seven at presets paper and release, and at smaller ones the two on which the
            paper replaces the solver, too.
        official: Train on the published files, as in flow lsm; a study of grids that they do not
            have is refused.
        cells: Where cells train: `here`, in processes of this run; on the `pool` of cells, each a
            run of its own; `auto` takes the pool for presets that take longer than quick.
        precision: The numbers that products are made of: float32, tf32 or bfloat16, the latter two
            for GPUs; none given means the preset's. Such cells have a name of their own.
        compile: Let torch compile the models, for GPUs.
        device: What cells train on: cpu, cuda, cuda:1 or mps; none given means LSM_DEVICE where
            they train.

    """
    from flows.steps.data.given import problems_named
    from flows.steps.training.cells import computing, named_study_cells
    from lsm_core.studies.sections import setting_table

    settings, changes = current_settings(), computing(precision, compile)
    problems = problems_named(benchmarks, settings.root)
    wanted, names = named_study_cells(name, preset, seeds, models, rows, problems, changes)
    suite = Suite(
        study=name,
        preset=preset,
        official=official,
        cells=wanted,
        names=names,
        where=cells,
        device=device,
    )
    outcomes = run_cells(suite, settings)
    finish_suite(suite, outcomes, settings, setting_table(outcomes))
    # A cell that needs no other name is called as its model is.
    return [
        replace(outcome, setting=outcome.setting or outcome.model).to_plain()
        for outcome in outcomes
    ]


transfer = study.with_options(name="transfer")
resolutions = study.with_options(name="resolutions")
ablations = study.with_options(name="ablations")
hyperparameters = study.with_options(name="hyperparameters")
stability = study.with_options(name="stability")
"""The names under which Prefect lists the deployments; which study each runs is in prefect.yaml."""


@flow(name="efficiency", timeout_seconds=A_MONTH)
@tried_once_more
def efficiency(models: Models | None = None, sizes: list[Positive] | None = None) -> Results:
    """Measure what models cost on larger and larger grids.

    What was measured before on this machine is taken from the store.

    Args:
        models: The models; none named means the paper's ten.
        sizes: Points along an axis of the grids; none given means the paper's.

    """
    from flows.engine.progress import current_progress
    from flows.steps.reports.efficiency import measure_efficiency
    from flows.steps.reports.page import write_report
    from lsm_core.reporting.efficiency import efficiency_table

    settings = current_settings()
    costs, failed = measure_efficiency(models, sizes, settings, current_progress())
    if costs:
        link_report(settings, write_report(settings.root))
        shown = "\n".join(["```", efficiency_table(costs), "```", *failed])
        create_markdown_artifact(shown, key="efficiency", description="Cost of models")
    if failed:
        n_all = len(costs) + len(failed)
        raise CellsFailed(f"{len(failed)} of {n_all} measurements failed: {'; '.join(failed)}")
    return [cost.to_plain() for cost in costs]
