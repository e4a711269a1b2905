"""What results of one table have in common: a task, under one id."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lsm_core.result import Begun, Result, marked

Division = Literal["published", "modern"]
DIVISIONS: dict[Division, str] = {
    "published": "each model as its authors train it; baselines as the LSM paper does",
    "modern": "one recipe for all models",
}
METRIC = "rel_l2"
OF_THE_MODEL = ("weight_decay", "precision", "compile", "accumulation", "shuffle_bytes")
"""What of a recipe a model may have otherwise, seen as a flag or not changing what is compared."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data, split, normalisation, metric and protocol: what may be compared."""

    benchmark: str
    preset: str
    origin: str
    resolution: tuple[int, ...]
    division: Division
    dataset: str
    """Hash of the data's content."""
    split: Mapping[str, int]
    normalization: tuple[str, ...]
    recipe: Mapping[str, Any]
    """How all of its models are trained; empty in the division `published`."""

    @property
    def id(self) -> str:
        """Return the hash of everything that is compared under."""
        plain = {**vars(self), "metric": METRIC}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """Return what it is called on a page."""
        grid = marked("×".join(map(str, self.resolution)), self.origin)
        return f"{self.benchmark} ({grid} points), preset {self.preset}, division {self.division}"

    @property
    def name(self) -> str:
        """Return what it is called in files and addresses."""
        origin = "" if self.origin == "generated" else f"-{self.origin}"
        grid = "x".join(map(str, self.resolution))
        return f"{self.benchmark}-{grid}-{self.preset}{origin}-{self.division}-{self.id}"


def task_of(run: Result | Begun) -> Task:
    """Return the task that a run is of."""
    training, data = dict(run.settings["training"]), run.settings["data"]
    scales = tuple(training.pop(f"{part}_normalization", "none") for part in ("input", "target"))
    division: Division = "published" if run.preset in ("paper", "release") else "modern"
    recipe = {k: v for k, v in training.items() if k not in OF_THE_MODEL}
    return Task(
        benchmark=run.benchmark,
        preset=run.preset,
        origin=run.origin,
        resolution=tuple(run.resolution),
        division=division,
        dataset=run.dataset.digest,
        split=dict(data["split_sizes"]),
        normalization=scales,
        recipe=recipe if division == "modern" else {},
    )
