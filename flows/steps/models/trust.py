"""How far the models of finished runs can be trusted: found out once, and kept with them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from flows.steps.data.datasets import location_of
from flows.steps.models.packaging import TRUST, TrainedRun, kept_trust, trained_run
from flows.steps.training.fields import fields_of, part_of
from lsm_core.evaluation.calibration import CALIBRATION_SAMPLES, calibrated, errors_and_spreads
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.plans import Split
from lsm_core.surrogates.trust import Array, Trust, features
from lsm_core.training.batches import Fields
from storage.datasets.reader import Dataset, open_dataset
from storage.errors import StorageError
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

NAME = TRUST.removesuffix(".npz")
MEASURED = "trust_test"
"""What the calibration says of the test samples, which it has not seen."""


@dataclass(frozen=True)
class Measured:
    """Of every test sample: its error, the spread of its prediction, and how strange it is."""

    errors: Float[np.ndarray, " samples"]
    spreads: Float[np.ndarray, " samples"]
    strangeness: Float[np.ndarray, " samples"]


def with_trust(run: TrainedRun, root: Location) -> TrainedRun:
    """Return a run with its calibration, which is made and kept if it has none.

    Without its dataset, or validation samples in it, nothing can be said: the run as it is.
    """
    if run.trust is not None:
        return run
    checkpoints = Checkpoints(root / "checkpoints" / run.result.identity)
    experiment = Experiment.from_plain(run.result.settings)
    try:
        sizes: Mapping[Split, int] = experiment.data.split_sizes
        dataset = open_dataset(location_of(experiment.data, root))
        dataset = dataset.first({str(split): size for split, size in sizes.items()})
        trust, measured = _calibrated(run, dataset)
    except (StorageError, ValueError, LookupError, FileNotFoundError):
        return run
    checkpoints.write_arrays(MEASURED, vars(measured))
    checkpoints.write_arrays(NAME, trust.to_arrays())
    return replace(run, trust=kept_trust(checkpoints))


def measured_trust(root: Location, identity: str) -> tuple[Trust, Measured] | None:
    """Return the calibration of a run and what it says of test samples; None if it has none."""
    checkpoints = Checkpoints(root / "checkpoints" / identity)
    try:
        measured = Measured(**checkpoints.arrays(MEASURED))
    except FileNotFoundError:
        return None
    trust = kept_trust(checkpoints)
    return None if trust is None else (trust, measured)


def strange_note(identity: str, arrays: Mapping[str, Array], root: Location) -> str:
    """Return in a sentence how many inputs are unlike what a model was trained on, if many are.

    Nothing if they are no more than chance explains, or if the model has no calibration.
    """
    run = with_trust(trained_run(identity, root), root)
    if run.trust is None:
        return ""
    _, opinion = run.predictor.with_opinion(arrays, run.trust)
    if opinion is None:
        return ""
    n_strange, n_all = int(opinion.is_strange.sum()), len(opinion.is_strange)
    stated = run.trust.false_alarms
    if n_strange <= run.trust.most_by_chance(n_all):
        return ""
    return (
        f"{n_strange} of {n_all} new inputs are unlike those that run {identity} was trained on, "
        f"where {stated:.0%} would be called so by chance: its expected errors do not hold there"
    )


def measure(run: TrainedRun, trust: Trust, samples: Fields) -> Measured:
    """Return what a calibration says of samples whose targets are known."""
    surrogate = run.predictor.surrogate()
    errors, spreads = errors_and_spreads(surrogate, samples)
    found: Array = trust.strangeness(features(surrogate, samples.inputs, int(trust.cells)))
    return Measured(errors, spreads, found)


def _calibrated(run: TrainedRun, dataset: Dataset) -> tuple[Trust, Measured]:
    def fields(split: Split) -> Fields:
        part = part_of(dataset, run.benchmark, split)
        return fields_of(part[:CALIBRATION_SAMPLES], run.benchmark)

    in_order = run.benchmark.positions != "scattered points"
    surrogate = run.predictor.surrogate()
    trust = calibrated(surrogate, fields("train"), fields("validation"), in_order=in_order)
    return trust, measure(run, trust, fields("test"))
