"""What the comparison sends: a run a model, called as the trainings behind it are."""

from pathlib import Path

from flows.steps.reports.comparison_runs import comparison_records, write_note
from flows.steps.reports.results import read_outcomes
from flows.steps.training.run_record import finished_record
from storage.location import Location
from storage.tracking.charts_page import NOTE, SURROGATE
from storage.tracking.store import COMPARISON, open_tracking
from tests.flows.steps.models.test_best_model import finished_run


def test_a_model_is_called_the_same_on_every_page(tmp_path: Path) -> None:
    """MLflow makes the colour of a model from that name."""
    root = Location.parse(str(tmp_path))
    trained = [finished_run(root, "burgers", model, 0.1) for model in ("lsm_ours", "fno")]
    compared = {each.tags[SURROGATE] for each in comparison_records(read_outcomes(root))}
    assert compared == {"LSM (ours)", "fno"}
    assert {finished_record(each).tags[SURROGATE] for each in trained} == compared


def test_the_first_line_says_which_model_is_best_where(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path / "store"))
    for benchmark, model, error in (
        ("burgers", "fno", 0.1),
        ("burgers", "lsm_ours", 0.05),
        ("darcy", "fno", 0.02),
    ):
        finished_run(root, benchmark, model, error)
    comparison = open_tracking(f"sqlite:///{tmp_path}/mlflow.db", root).at(COMPARISON)
    assert write_note(read_outcomes(root), comparison)
    note = comparison.client.get_experiment(comparison.experiment_id).tags[NOTE]
    said = "benchmark-smoke, the best: **LSM (ours)** on burgers 5.00 %; **fno** on darcy 2.00 %"
    assert note.splitlines()[0] == said
