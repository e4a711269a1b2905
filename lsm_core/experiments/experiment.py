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
    dataset: str = ""
    code: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the protocol as plain data: everything but seed, data and code."""
        return {
            "preset": self.preset,
            "data": self.data.describe(),
            "model_name": self.model_name,
            "model": asdict(self.model),
            "training": asdict(self.training),
        }

    @property
    def protocol(self) -> str:
        """Return the hash of the protocol, equal for all seeds."""
        return _digest(self.describe())

    @property
    def identity(self) -> str:
        """Return the hash that names the run, its checkpoints and its cache entry."""
        own = {"seed": self.seed, "dataset": self.dataset, "code": self.code}
        return _digest({"protocol": self.protocol, **own})


def _digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
