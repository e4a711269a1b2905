from dataclasses import replace
from typing import get_args

import pytest

from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.presets import experiment
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName, PresetName, StudyName
from lsm_core.reporting.published_results import published_tables
from lsm_core.reporting.tables import Table
from lsm_core.studies.catalogue import (
    LATER_MODELS,
    STUDIES,
    Study,
    study_blocks,
    study_cells,
    study_of,
)
from lsm_core.studies.cells import ABLATED, FRACTIONS, RESOLUTIONS, Cell
from lsm_core.surrogates.operator import build_operator
from tests.lsm_core.studies.test_sections import run


def test_every_study_that_has_a_name_is_there() -> None:
    assert tuple(STUDIES) == get_args(StudyName)


NAME: StudyName = "darcy-at-43"
"""Names are checked against their type while tests run, so another study takes one's place."""


def test_one_entry_makes_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(preset: PresetName, seed: int) -> list[Cell]:
        whole = experiment(preset, "darcy", "lsm", seed)
        half = replace(whole, training=replace(whole.training, fraction=0.5))
        return [Cell(setting="half of the data", experiment=half)]

    monkeypatch.setitem(STUDIES, NAME, Study(title="Less data", cells=halves, seeds=(0, 1)))
    (first, second) = study_cells(NAME, "smoke", rows=["half of the data"])
    assert (first.experiment.seed, second.experiment.seed) == (0, 1)
    with pytest.raises(ValueError, match="the study darcy-at-43 has models of its own"):
        study_cells(NAME, "smoke", models=["fno"])
    assert study_of(NAME).title == "Less data"
    table, *_ = study_blocks(NAME, [run(0.1, setting="half of the data")])
    assert isinstance(table, Table)
    assert table.rows[0][1] == "half of the data"


@pytest.mark.parametrize("name", STUDIES)
def test_cells_have_names_and_identities_of_their_own_and_can_be_built(name: StudyName) -> None:
    cells = study_cells(name, "smoke", [0])
    names = {(cell.setting, cell.experiment.data.benchmark.name) for cell in cells}
    assert len(names) == len(cells)
    identities = {cell.experiment.protocol for cell in cells}
    # The full model is a row of both ablation tables and of all sweeps.
    assert len(identities) >= len(cells) - 2
    models = {(c.experiment.model, c.experiment.data): c.experiment for c in cells}
    for built in models.values():
        build_operator(built.model, built.data.benchmark)


@pytest.mark.parametrize("preset", ["quick", "paper", "release"])
def test_larger_presets_have_the_same_studies(preset: str) -> None:
    for name in STUDIES:
        assert study_cells(name, preset, [0])


def test_seeds_repeat_a_study() -> None:
    one, two = (study_cells("burgers-forms", "smoke", seeds) for seeds in ([0], [0, 1]))
    assert len(two) == 2 * len(one)
    assert {cell.experiment.seed for cell in two} == {0, 1}


def test_transfer_starts_from_the_pipe_model_on_nested_parts_of_the_data() -> None:
    cells = study_cells("transfer", "smoke", [3], ["unet"])
    tuned = [cell.experiment for cell in cells if "fine-tuned" in cell.setting]
    scratch = [cell.experiment for cell in cells if "scratch" in cell.setting]
    assert [cell.training.fraction for cell in tuned] == list(FRACTIONS)
    assert all(cell.start is None for cell in scratch)
    for cell in tuned:
        assert cell.start is not None
        assert isinstance(cell.start.source, Experiment)
        assert cell.start.source.data.benchmark.name == "pipe"
        assert cell.start.source.seed == 3
        assert cell.model_name == cell.start.source.model_name == "unet"
    assert len({cell.protocol for cell in (*tuned, *scratch)}) == len(cells)


def test_models_are_those_of_the_paper_and_later_unless_others_are_named() -> None:
    later = set(LATER_MODELS)
    published = published_tables()
    transfer = set(published["transfer_pipe_to_airfoil"]) - {
        "unit",
        "source",
        "target",
        "fractions",
    }
    assert models_of(study_cells("transfer", "paper", [0])) == transfer | later
    for name in ("darcy", "burgers", "navier_stokes"):
        study: StudyName = f"resolutions-{name.replace('_', '-')}"  # type: ignore[assignment]
        expected = set(published[f"{name}_resolutions"]) - {"resolutions"}
        cells = study_cells(study, "paper", [0])
        assert models_of(cells) == expected | later
        sizes = {cell.experiment.data.benchmark.shape.space[0] for cell in cells}
        assert sizes == set(published[f"{name}_resolutions"]["resolutions"])
    assert models_of(study_cells("resolutions-burgers", "quick", [0], ["sno"])) == {"sno"}
    with pytest.raises(ValueError, match="made for navier_stokes, not for burgers"):
        study_cells("resolutions-burgers", "quick", [0], ["kno"])


def models_of(cells: list[Cell]) -> set[str]:
    return {cell.experiment.model_name for cell in cells}


def test_a_study_of_lsm_takes_no_models() -> None:
    with pytest.raises(ValueError, match="the study ablations has models of its own"):
        study_cells("ablations", "smoke", [0], ["fno"])


def test_some_rows_of_a_study_can_be_asked_for() -> None:
    cells = study_cells("ablations", "smoke", [0, 1], rows=["without patches"])
    assert {cell.setting for cell in cells} == {"without patches"}
    assert len(cells) == 4
    with pytest.raises(ValueError, match="the study ablations has no row 'pathces'"):
        study_cells("ablations", "smoke", [0], rows=["pathces"])


def test_stability_repeats_cells_of_the_main_table_from_five_seeds() -> None:
    cells = [cell.experiment for cell in study_cells("stability", "smoke")]
    assert len(cells) == 5 * len(get_args(BenchmarkName))
    assert {cell.seed for cell in cells} == {0, 1, 2, 3, 4}
    assert experiment("smoke", "darcy", "lsm", 3) in cells
    narrow = study_cells("stability", "smoke", [7], ["fno"], benchmarks=["pipe"])
    assert [cell.experiment for cell in narrow] == [experiment("smoke", "pipe", "fno", 7)]


def test_ablations_on_points_change_the_body_inside_the_wrapper() -> None:
    cells = [
        cell.experiment
        for cell in study_cells("ablations", "smoke", [0])
        if cell.experiment.data.benchmark.name == "elasticity_p"
    ]
    bodies = [cell.model.body for cell in cells if isinstance(cell.model, PointCloudConfig)]
    assert len(bodies) == len(cells)
    assert all(isinstance(body, LsmConfig) for body in bodies)
    assert len(set(bodies)) == len(bodies)


def test_large_presets_ablate_on_the_benchmarks_of_the_papers_table() -> None:
    tables = published_tables()
    for preset in ("paper", "release"):
        cells = study_cells("ablations", preset, [0])
        assert benchmarks_of(cells) == set(tables["ablations"]["lsm"]["error"])
        solvers = [cell for cell in cells if cell.setting == "fourier solver"]
        assert benchmarks_of(solvers) == set(tables["spectral_block_ablations"]["fourier solver"])
        assert len(cells) == 7 * 8 + 2 * 3
    assert benchmarks_of(study_cells("ablations", "quick", [0])) == {"elasticity_p", "darcy"}


def test_ablations_take_benchmarks_and_can_be_built_on_all_of_them() -> None:
    cells = study_cells("ablations", "smoke", [0], benchmarks=ABLATED)
    assert benchmarks_of(cells) == set(ABLATED)
    for cell in cells:
        build_operator(cell.experiment.model, cell.experiment.data.benchmark)
    with pytest.raises(ValueError, match="transfer has a benchmark of its own"):
        study_cells("transfer", "smoke", [0], benchmarks=["pipe"])


def benchmarks_of(cells: list[Cell]) -> set[str]:
    return {cell.experiment.data.benchmark.name for cell in cells}


@pytest.mark.parametrize("preset", ["smoke", "quick", "matched", "paper", "release"])
@pytest.mark.parametrize("benchmark", RESOLUTIONS)
def test_every_study_of_resolutions_has_two_or_more(
    preset: PresetName, benchmark: BenchmarkName
) -> None:
    study: StudyName = f"resolutions-{benchmark.replace('_', '-')}"  # type: ignore[assignment]
    cells = study_cells(study, preset, [0], ["fno"])
    assert len({cell.experiment.data.benchmark.shape.space for cell in cells}) > 1
