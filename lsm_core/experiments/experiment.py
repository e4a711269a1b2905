"""One cell of a comparison: a model, trained in one way, on one problem, from one seed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.configuration import from_plain
from lsm_core.experiments.plans import DataPlan
from lsm_core.experiments.protocols import plan_from_plain
from lsm_core.models.catalogue import ModelConfig
from lsm_core.names import ModelName, PresetName
from lsm_core.result import Outcome
from lsm_core.surrogates.predictor import model_from_plain
from lsm_core.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where training begins, if not from random weights.

    `source` is another experiment, or the identity of a run that is in the store. The parts of the
    model that `frozen` names stay as they were there.
    """

    source: "Experiment | str"
    frozen: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is trained on which data, how, and from which seed.

    It has no identity: which run it is depends on the data and on the sources it meets. Bound to
    those it is a `BoundExperiment`.
    """

    preset: PresetName
    data: DataPlan
    model_name: ModelName
    model: ModelConfig
    training: TrainingConfig
    seed: int = 0
    start: Start | None = None

    @property
    def benchmark(self) -> Benchmark:
        """Return the problem."""
        return self.data.benchmark

    @property
    def frozen(self) -> tuple[str, ...]:
        """Return the parts of the model that are not trained."""
        return self.start.frozen if self.start else ()

    def to_plain(self) -> dict[str, Any]:
        """Return the protocol as JSON has it: everything but seed and source."""
        described = {
            "preset": self.preset,
            "data": self.data.to_plain(),
            "model_name": self.model_name,
            "model": asdict(self.model),
            "training": asdict(self.training),
            **({"frozen": self.frozen} if self.start else {}),
        }
        return dict(json.loads(json.dumps(described)))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], seed: int = 0) -> "Experiment":
        """Return the experiment of a protocol, from random weights.

        KeyError, TypeError or ValueError if another version wrote the protocol.
        """
        name, preset = plain["model_name"], plain["preset"]
        return cls(
            preset=preset,
            data=plan_from_plain(plain["data"], preset),
            model_name=name,
            model=model_from_plain(name, plain["model"]),
            training=from_plain(TrainingConfig, plain["training"]),
            seed=seed,
        )

    @property
    def protocol(self) -> str:
        """Return the hash of the protocol, equal for all seeds."""
        if self.start is None:
            return _digest(self.to_plain())
        source = self.start.source
        before = source.protocol if isinstance(source, Experiment) else source
        return _digest({**self.to_plain(), "after": before})


@dataclass(frozen=True, kw_only=True)
class BoundExperiment(Experiment):
    """An experiment bound to its data and to the sources that train it: one run, by its identity.

    `dataset` and `code` are hashes of the data's recipe and of the sources, so that a run is never
    taken for one of other data or code. `source` is the run whose weights it starts from.
    """

    dataset: str
    code: str
    source: "BoundExperiment | str | None" = None

    @property
    def experiment(self) -> Experiment:
        """Return it without what it is bound to."""
        return Experiment(**{field.name: getattr(self, field.name) for field in fields(Experiment)})

    @property
    def identity(self) -> str:
        """Return the hash that names the run and its checkpoints."""
        plain = {
            "protocol": self.protocol,
            "seed": self.seed,
            "dataset": self.dataset,
            "code": self.code,
        }
        return _digest(plain if self.source is None else {**plain, "source": self.source_identity})

    @property
    def source_identity(self) -> str | None:
        """Return the identity of the run whose weights this one starts from."""
        return self.source.identity if isinstance(self.source, BoundExperiment) else self.source

    def outcome(self, study: str, setting: str = "") -> Outcome:
        """Return what its result will begin with as part of a study, and a failure, too."""
        return Outcome(
            identity=self.identity,
            protocol=self.protocol,
            study=study,
            preset=self.preset,
            origin=self.data.origin,
            benchmark=self.benchmark.name,
            resolution=tuple(self.benchmark.shape.space),
            model=self.model_name,
            setting=setting,
            seed=self.seed,
            fraction=self.training.fraction,
            source=self.source_identity,
        )


def _digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
