"""The part of a run that makes its numbers: no files, no clock, no network.

A run's identity holds the hash of this module and of those that it imports.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import prod

import torch
from jaxtyping import Float
from safetensors.torch import load
from torch import Tensor, nn

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.evaluation.evaluate import (
    Breakdown,
    chosen_samples,
    error_of_the_mean,
    evaluate,
    relative_errors,
    sample_errors,
)
from lsm_core.experiments.experiment import Experiment
from lsm_core.layers.ranks import n_ranks, rank
from lsm_core.problems.shape import ProblemShape
from lsm_core.result import Best, Epoch
from lsm_core.surrogates.normalization import Moments, normalization
from lsm_core.surrogates.operator import build_operator
from lsm_core.surrogates.rollout import Rollout
from lsm_core.surrogates.surrogate import Surrogate, predict, samples_at_once
from lsm_core.training.batches import SplitFields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.fine_tuning import EVERYTHING, adopt, freeze, take_over
from lsm_core.training.fitting import fit_directly
from lsm_core.training.loop import BatchReport, EpochReport, fit
from lsm_core.training.losses import Grid
from lsm_core.training.number_formats import set_number_formats
from lsm_core.training.state import Snapshot, start_training


class Trial:
    """An experiment in training, or the part of it that is this rank's.

        trial = Trial(experiment, fields, device)
        for happened in trial.fit():
            if isinstance(happened, EpochReport):
                errors = trial.measure(happened.epoch)
        trial.select_weights()
        trial.figures("test")

    What is collective has to be called by all ranks together.
    """

    def __init__(
        self,
        experiment: Experiment,
        fields: SplitFields,
        device: torch.device,
        weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Build the model before training; `weights` are those that the experiment starts from."""
        config = experiment.training
        self.config, self.benchmark, self.fields = config, experiment.benchmark, fields
        self.history: list[Epoch] = []
        self.best: Best | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.targets = Moments.of(part.at_points().targets for part in fields.parts["train"])
        torch.manual_seed(experiment.seed)
        surrogate = Surrogate(
            build_operator(experiment.model, experiment.benchmark),
            normalization(
                config.input_normalization,
                Moments.of(part.at_points().inputs for part in fields.parts["train"]),
            ),
            normalization(config.target_normalization, self.targets),
        )
        self.is_ready = fit_directly(surrogate, fields.parts["train"])
        self.begun_anew: tuple[str, ...] = ()
        if EVERYTHING in experiment.frozen and weights is not None:
            take_over(surrogate, weights)
            self.is_ready = True
        elif weights is not None:
            self.begun_anew = tuple(adopt(surrogate, weights))
            freeze(surrogate, experiment.frozen)
        self.surrogate = _on_device(surrogate, config, device, self.benchmark.shape)
        self.state = start_training(self.surrogate, config, len(fields.batches))
        # Dropout must differ between ranks, weights must not.
        torch.manual_seed(experiment.seed + 7919 * rank())

    @property
    def step(self) -> int:
        """Return how many batches were trained on."""
        return self.state.epoch * len(self.fields.batches) + self.state.batch

    @property
    def n_parameters(self) -> int:
        """Return the number of trained and frozen parameters."""
        return sum(parameter.numel() for parameter in self.surrogate.parameters())

    def fit(self) -> Iterator[BatchReport | EpochReport]:
        """Train to the end; control comes back after every batch and epoch. Collective.

        A model that was fitted, or that is only asked, is at its end.
        """
        if self.is_ready:
            return iter(())
        return fit(self.state, self.fields.batches, self.config, grid_of(self.benchmark))

    def measure(self, epoch: int) -> dict[str, float]:
        """Return the errors after an epoch, by split, and keep weights that are the best so far.

        Test samples are measured only where they choose the epoch; a split without samples has no
        error. Collective.
        """
        chooses = "test" if self.config.selection == "best_test" else "validation"
        errors = {}
        with self.state.averaged():
            for split in dict.fromkeys(("validation", chooses)):
                found = relative_errors(
                    self.surrogate,
                    self.fields.parts[split],
                    self._evaluation_batch,
                    self.config.test_statistics,
                )
                if len(found):
                    errors[split] = found.mean().item()
            error = errors.get(chooses, float("inf"))
            if error < (self.best.error if self.best else float("inf")):
                self.best = Best(epoch=epoch, error=error)
                weights = self.surrogate.state_dict()
                self.best_weights = {name: value.clone() for name, value in weights.items()}
        return errors

    def snapshot(self) -> Snapshot:
        """Return all but the best weights, to go on from. Collective: every rank's random state."""
        best = asdict(self.best) if self.best else None
        return self.state.snapshot({"history": list(map(asdict, self.history)), "best": best})

    def restore(self, content: bytes, read_best: Callable[[], bytes]) -> None:
        """Go on from a saved state; the best weights are read if there were any."""
        notes = self.state.restore(content)
        self.history = [Epoch(**epoch) for epoch in notes["history"]]
        if notes["best"]:
            self.best, self.best_weights = Best(**notes["best"]), load(read_best())

    def select_weights(self) -> None:
        """Take the weights that are the result: the last, their mean or the best epoch's."""
        self.state.take(self.state.average)
        if self.config.selection != "last" and self.best:
            self.surrogate.load_state_dict(self.best_weights)

    def predict_first(self, n_samples: int) -> Float[Tensor, "samples *space n_outputs"]:
        """Return predictions for the first test samples."""
        first = next(iter(self.fields.parts["test"]))[:n_samples]
        return predict(
            self.surrogate,
            first.inputs,
            self._evaluation_batch,
            self.config.test_statistics,
            first.weights,
        )

    def sample_errors(self, split: str) -> dict[str, Float[Tensor, " samples"]]:
        """Return what the error of every sample of a split is made of, by name."""
        return sample_errors(
            self.surrogate,
            self.fields.parts[split],
            self._evaluation_batch,
            self.config.test_statistics,
        )

    def predict_samples(
        self, split: str, samples: Sequence[int]
    ) -> Float[Tensor, "chosen *space n_outputs"]:
        """Return predictions for some samples of a split, by their numbers."""
        chosen = list(chosen_samples(self.fields.parts[split], samples))
        known = [each.weights for each in chosen if each.weights is not None]
        return predict(
            self.surrogate,
            torch.cat([each.inputs for each in chosen]),
            self._evaluation_batch,
            self.config.test_statistics,
            torch.cat(known) if known else None,
        )

    def figures(self, split: str) -> dict[str, float]:
        """Return the errors on a split, with their parts; none if it has no samples."""
        return evaluate(
            self.surrogate,
            self.fields.parts[split],
            self._evaluation_batch,
            self.config.test_statistics,
            _breakdown_of(self.benchmark),
        )

    def error_of_the_mean(self) -> float | None:
        """Return the test error of always predicting the mean of the training targets."""
        return error_of_the_mean(self.targets.mean, self.fields.parts["test"])

    @property
    def _evaluation_batch(self) -> int:
        """Return how many samples are measured together; it matters for batch statistics."""
        by_batch = self.config.test_statistics == "batch"
        if by_batch:
            return self.config.batch_of(self.fields.batches.n_samples)
        return samples_at_once(prod(self.benchmark.shape.space))


def grid_of(benchmark: Benchmark) -> Grid:
    """Return which axes of a problem are periodic; none of scattered points."""
    if benchmark.positions == "scattered points":
        return ()
    return (benchmark.positions == "periodic nodes",) * len(benchmark.space)


def _breakdown_of(benchmark: Benchmark) -> Breakdown:
    """Return the error's parts: a step of a rollout, a channel, the boundary and the interior."""
    n_channels = benchmark.shape.n_outputs
    kind = "step" if benchmark.n_steps > 1 else "channel"
    has_ends = benchmark.positions in ("nodes", "cell centres")
    return Breakdown(
        channels=tuple(f"{kind}_{number}" for number in range(1, n_channels + 1)),
        boundary_axes=tuple(
            axis for axis, name in enumerate(benchmark.space) if has_ends and name != "time"
        ),
    )


def _on_device(
    surrogate: Surrogate, config: TrainingConfig, device: torch.device, shape: ProblemShape
) -> Surrogate:
    """Return the model on its device, in the precision of the run, compiled if it is asked for."""
    if config.precision != "float32" and device.type != "cuda":
        raise ValueError(
            f"precision {config.precision} is for cuda; on {device.type} train in float32"
        )
    set_number_formats(config.precision)
    surrogate = surrogate.to(device)
    if config.compile and device.type == "cuda":
        compile_one_step(surrogate, shape)
    _require_shared_statistics(surrogate, config)
    return surrogate


def compile_one_step(surrogate: Surrogate, shape: ProblemShape, backend: str = "inductor") -> None:
    """Let torch compile the model; of a rollout the one step that it repeats.

    A pass before it makes the constants of this grid, which are then inputs of one whole graph.
    """
    device = next(surrogate.parameters()).device
    predict(surrogate, torch.zeros(1, *shape.space, shape.n_inputs, device=device), 1)
    operator = surrogate.model
    one_step = operator.model if isinstance(operator, Rollout) else operator
    one_step.compile(backend=backend)


def _require_shared_statistics(model: nn.Module, config: TrainingConfig) -> None:
    """Refuse what several ranks would not compute as one."""
    if n_ranks() == 1:
        return
    if config.test_statistics == "batch":
        raise ValueError("test_statistics `batch` is for one rank; run on one or take `running`")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(f"{name} keeps statistics of its own rank; train this model on one")
