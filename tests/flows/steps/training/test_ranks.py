"""Two processes that train one model: the same as one, and safe when one of them dies."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.errors import ProcessDied
from flows.steps.training import run as training
from flows.steps.training.cells import bind
from flows.steps.training.devices import joined_ranks
from flows.steps.training.isolation import Report, run_isolated
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace
from lsm_core.experiments import trial
from lsm_core.experiments.experiment import BoundExperiment
from lsm_core.layers.normalization import BatchNormalization
from lsm_core.layers.ranks import rank
from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm import release_form
from lsm_core.result import Result
from lsm_core.surrogates.normalization import fit_normalization
from lsm_core.surrogates.surrogate import Surrogate
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import train_step
from lsm_core.training.state import start_training
from tests.flows.steps.training.test_run import experiment, workplace


def three_epochs() -> BoundExperiment:
    """Return a run with batch statistics, whose last batch has fewer samples than the others."""
    made = experiment(epochs=3, batch_size=7).experiment
    return bind(replace(made, model=release_form(width=8, n_scales=3)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return workplace(tmp_path_factory.mktemp("ranks"), "store")


def elsewhere(place: Workplace, folder: Path) -> Workplace:
    """Return a workplace with the same data and nothing else."""
    from storage.location import Location

    root = Location.parse(str(folder))
    return replace(place, root=root, tracking_uri=f"sqlite:///{folder}/mlflow.db")


@pytest.fixture(scope="module")
def two(place: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Return the result of two ranks that nothing happened to."""
    folder = tmp_path_factory.mktemp("two")
    return run_isolated(train, three_epochs(), elsewhere(place, folder), n_ranks=2)


def curve(result: Result, name: str) -> list[float]:
    return [getattr(epoch, name) for epoch in result.history]


def test_two_ranks_train_as_one(place: Workplace, two: Result, tmp_path: Path) -> None:
    one = run_isolated(train, three_epochs(), elsewhere(place, tmp_path))
    assert two.environment["ranks"] == 2
    for name in ("train", "validation"):
        assert curve(two, name) == pytest.approx(curve(one, name), rel=1e-5), name
    assert two.error == pytest.approx(one.error, rel=1e-5)


def messages_of_a_step(accumulation: int, report: Report) -> tuple[int, int]:
    """Return the messages of a training step, and the layers with batch statistics."""
    from torch import distributed

    from lsm_core.problems.shape import ProblemShape

    torch.set_num_threads(1)
    n_sent, send = 0, distributed.all_reduce

    def count(*arguments: Any, **options: Any) -> Any:
        nonlocal n_sent
        n_sent += 1
        return send(*arguments, **options)

    distributed.all_reduce = count
    with joined_ranks(torch.device("cpu")):
        shape = ProblemShape(space=(16, 16), n_inputs=1, n_outputs=1)
        torch.manual_seed(0)
        model = build_model(release_form(width=8, n_scales=3), shape)
        config = TrainingConfig(accumulation=accumulation)
        state = start_training(model, config, n_batches=1)
        fields = Fields(torch.rand(5, 16, 16, 1), torch.rand(5, 16, 16, 1))
        train_step(state, fields, config)
        n_layers = sum(isinstance(part, BatchNormalization) for part in model.modules())
    return n_sent, n_layers


# Of five samples one rank has three and the other two: in three parts each would wait for ever.
@pytest.mark.parametrize(("accumulation", "n_parts"), [(1, 1), (3, 2)])
def test_a_step_sends_two_messages_a_normalisation_and_one_for_all_gradients(
    accumulation: int, n_parts: int
) -> None:
    n_sent, n_layers = run_isolated(messages_of_a_step, accumulation, n_ranks=2)
    assert n_layers == 10
    assert n_sent == n_parts * 2 * n_layers + 1


def train_and_kill_a_rank(experiment: BoundExperiment, place: Workplace, report: Report) -> Any:
    """Train, but let the second rank die in the middle of the second epoch."""
    training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    original = training._Run._is_save_due

    def is_due(self: Any) -> bool:
        state = self.trial.state
        if rank() == 1 and state.epoch == 1 and state.batch == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self)

    training._Run._is_save_due = is_due  # type: ignore[method-assign]
    return train(experiment, place, report)


def test_a_rank_that_dies_ends_the_run_with_its_name_and_it_resumes(
    place: Workplace, two: Result, tmp_path: Path
) -> None:
    killed = elsewhere(place, tmp_path)
    with pytest.raises(ProcessDied, match=r"rank 1 of 2 .* exit code -9"):
        run_isolated(train_and_kill_a_rank, three_epochs(), killed, n_ranks=2)
    assert killed.checkpoints(three_epochs().identity).latest() is not None
    resumed = run_isolated(train, three_epochs(), killed, n_ranks=2)
    assert curve(resumed, "train") == curve(two, "train")


def test_a_layer_with_statistics_of_its_own_rank_is_refused() -> None:
    cell = three_epochs()
    scale = fit_normalization("none", torch.rand(2, 4, 3))
    model = Surrogate(torch.nn.Sequential(torch.nn.BatchNorm1d(3)), scale, scale)
    shape, cpu = cell.data.benchmark.shape, torch.device("cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "n_ranks", lambda: 2)
        with pytest.raises(ValueError, match="statistics of its own rank"):
            trial._on_device(model, cell.training, cpu, shape)
