"""The studies of the paper beside its main table, a flow each on one engine."""

from typing import Any, Literal

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import CellsFailed
from flows.matrix import run_side_by_side
from flows.settings import Settings
from lsm_core.names import ModelName, PresetName, StudyName

Results = list[dict[str, Any]]


def run_study(name: StudyName, preset: PresetName, seeds: list[int] | None) -> Results:
    """Train the cells of a study inside a flow and return their results, each with its setting."""
    from dataclasses import replace

    from flows.steps.cells import bound
    from lsm_core.experiments.study import study_cells
    from lsm_core.reporting.study import study_table

    settings = Settings.from_environment()
    settings.require_usable()
    cells = [
        replace(cell, experiment=bound(cell.experiment))
        for cell in study_cells(name, preset, seeds or [0])
    ]
    experiments, names = [c.experiment for c in cells], [c.setting for c in cells]
    found = run_side_by_side(experiments, settings, f"{name}-{preset}", names)
    results = [{**result, "setting": setting} for setting, result in zip(names, found, strict=True)]
    create_markdown_artifact(study_table(results), key=name, description=f"Study {name}")
    failures = [result for result in results if "error" in result]
    if failures:
        raise CellsFailed(
            f"{len(failures)} of {len(results)} runs failed, the first with {failures[0]['error']}"
        )
    return results


@flow(name="study", flow_run_name="{name}-{preset}")
def study(name: StudyName, preset: PresetName = "quick", seeds: list[int] | None = None) -> Results:
    """Run any study by its name."""
    return run_study(name, preset, seeds)


@flow(name="transfer", flow_run_name="transfer-{preset}")
def transfer(preset: PresetName = "quick", seeds: list[int] | None = None) -> Results:
    """Train on parts of the airfoil samples, from scratch and from models of pipes."""
    return run_study("transfer", preset, seeds)


@flow(name="resolutions", flow_run_name="resolutions-{benchmark}-{preset}")
def resolutions(
    benchmark: Literal["darcy", "burgers", "navier-stokes"],
    preset: PresetName = "quick",
    seeds: list[int] | None = None,
) -> Results:
    """Train on the same samples at several resolutions."""
    names: dict[str, StudyName] = {
        "darcy": "resolutions-darcy",
        "burgers": "resolutions-burgers",
        "navier-stokes": "resolutions-navier-stokes",
    }
    return run_study(names[benchmark], preset, seeds)


@flow(name="ablations", flow_run_name="ablations-{preset}")
def ablations(preset: PresetName = "quick", seeds: list[int] | None = None) -> Results:
    """Train LSM with parts replaced or left out."""
    return run_study("ablations", preset, seeds)


@flow(name="hyperparameters", flow_run_name="hyperparameters-{preset}")
def hyperparameters(preset: PresetName = "quick", seeds: list[int] | None = None) -> Results:
    """Train LSM with other numbers of tokens, basis operators and scales."""
    return run_study("hyperparameters", preset, seeds)


@flow(name="efficiency")
def efficiency(models: list[ModelName] | None = None, sizes: list[int] | None = None) -> Results:
    """Measure what models cost on larger and larger grids."""
    from flows.progress import current_progress
    from flows.steps.efficiency import log_efficiency, measure_efficiency
    from lsm_core.reporting.efficiency import efficiency_table

    settings = Settings.from_environment()
    settings.require_usable()
    costs = measure_efficiency(
        models or ["lsm", "fno"],
        sizes or [64, 128, 256, 512, 1024],
        settings.n_workers,
        current_progress(),
    )
    log_efficiency(costs, settings.tracking_uri, settings.root)
    create_markdown_artifact(
        efficiency_table(costs), key="efficiency", description="Cost of models"
    )
    return costs
