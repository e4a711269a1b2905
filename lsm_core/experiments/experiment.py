"""One cell of a comparison: a model, trained in one way, on one problem, from one seed."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from lsm_core.experiments.data_plan import DataPlan
from lsm_core.models.catalogue import ModelConfig
from lsm_core.names import ModelName, PresetName
from lsm_core.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where training begins, if not from random weights.

    `source` is another experiment, or the identity of a run that is in the store. The parts of the
    model that `frozen` names stay as they were there.
    """

    source: "Experiment | str"
    frozen: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Return the identity of the source."""
        return self.source if isinstance(self.source, str) else self.source.identity


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that decides the outcome of a training run.

    `dataset` and `code` are hashes of the data's recipe and of the sources that train; whoever
    runs the experiment fills them in, so that a run is never taken for one of other data or code.
    """

    preset: PresetName
    data: DataPlan
    model_name: ModelName
    model: ModelConfig
    training: TrainingConfig
    seed: int = 0
    start: Start | None = None
    dataset: str = ""
    code: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain data: everything but seed, source, data and code."""
        return {
            "preset": self.preset,
            "data": self.data.describe(),
            "model_name": self.model_name,
            "model": asdict(self.model),
            "training": asdict(self.training),
            **({"frozen": self.start.frozen} if self.start else {}),
        }

    @property
    def protocol(self) -> str:
        """Return the hash of the protocol, equal for all seeds."""
        source = self.start.source if self.start else None
        before = source.protocol if isinstance(source, Experiment) else source
        return _digest({**self.describe(), **({"after": before} if self.start else {})})

    @property
    def identity(self) -> str:
        """Return the hash that names the run, its checkpoints and its cache entry."""
        own = {"seed": self.seed, "dataset": self.dataset, "code": self.code}
        source = {"source": self.start.identity} if self.start else {}
        return _digest({"protocol": self.protocol, **own, **source})


def _digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
