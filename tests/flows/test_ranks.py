"""Two processes that train one model: the same as one, and safe when one of them dies."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.errors import ProcessDied
from flows.steps import training
from flows.steps.isolation import Report, run_isolated
from flows.steps.training import Workplace, train
from lsm_core.experiments.experiment import Experiment
from lsm_core.layers.ranks import rank
from lsm_core.models.lsm import release_form
from tests.flows.test_training import experiment, workplace


def three_epochs() -> Experiment:
    """Return a run with batch statistics, whose last batch has fewer samples than the others."""
    made = experiment()
    config = replace(made.training, epochs=3, batch_size=7)
    return replace(made, model=release_form(width=8, n_scales=3), training=config)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return workplace(tmp_path_factory.mktemp("ranks"), "store")


def elsewhere(place: Workplace, folder: Path) -> Workplace:
    """Return a workplace with the same data and nothing else."""
    from storage.location import Location

    root = Location.parse(str(folder))
    return replace(place, root=root, tracking_uri=f"sqlite:///{folder}/mlflow.db")


@pytest.fixture(scope="module")
def two(place: Workplace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of two ranks that nothing happened to."""
    folder = tmp_path_factory.mktemp("two")
    return run_isolated(train, three_epochs(), elsewhere(place, folder), n_ranks=2)


def curve(result: dict[str, Any], name: str) -> list[float]:
    return [record[name] for record in result["history"]]


def test_two_ranks_train_as_one(place: Workplace, two: dict[str, Any], tmp_path: Path) -> None:
    one = run_isolated(train, three_epochs(), elsewhere(place, tmp_path))
    assert two["environment"]["ranks"] == 2
    for name in ("train", "validation"):
        assert curve(two, name) == pytest.approx(curve(one, name), rel=1e-5), name
    assert two["test"]["rel_l2"] == pytest.approx(one["test"]["rel_l2"], rel=1e-5)


def train_and_kill_a_rank(experiment: Experiment, place: Workplace, report: Report) -> Any:
    """Train, but let the second rank die in the middle of the second epoch."""
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    original = training._Run._after

    def after(self: Any, happened: Any) -> None:
        original(self, happened)
        if rank() == 1 and self.state.epoch == 1 and self.state.batch == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    training._Run._after = after  # type: ignore[method-assign]
    return train(experiment, place, report)


def test_a_rank_that_dies_ends_the_run_with_its_name_and_it_resumes(
    place: Workplace, two: dict[str, Any], tmp_path: Path
) -> None:
    killed = elsewhere(place, tmp_path)
    with pytest.raises(ProcessDied, match=r"rank 1 of 2 .* exit code -9"):
        run_isolated(train_and_kill_a_rank, three_epochs(), killed, n_ranks=2)
    assert killed.checkpoints(three_epochs()).latest() is not None
    resumed = run_isolated(train, three_epochs(), killed, n_ranks=2)
    assert curve(resumed, "train") == curve(two, "train")


def test_a_layer_with_statistics_of_its_own_rank_is_refused() -> None:
    from flows.steps import devices

    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "n_ranks", lambda: 2)
        with pytest.raises(ValueError, match="statistics of its own rank"):
            devices.prepared(model, three_epochs().training, torch.device("cpu"))
