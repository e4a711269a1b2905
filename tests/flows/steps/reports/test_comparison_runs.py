"""What the comparison sends: a run a model, called as the trainings behind it are."""

from pathlib import Path

from flows.steps.reports.comparison_runs import comparison_records
from flows.steps.reports.results import read_outcomes
from flows.steps.training.run_record import finished_record
from storage.location import Location
from storage.tracking.charts_page import SURROGATE
from tests.flows.steps.models.test_best_model import finished_run


def test_a_model_is_called_the_same_on_every_page(tmp_path: Path) -> None:
    """MLflow makes the colour of a model from that name."""
    root = Location.parse(str(tmp_path))
    trained = [finished_run(root, "burgers", model, 0.1) for model in ("lsm_ours", "fno")]
    compared = {each.tags[SURROGATE] for each in comparison_records(read_outcomes(root))}
    assert compared == {"LSM (ours)", "fno"}
    assert {finished_record(each).tags[SURROGATE] for each in trained} == compared
