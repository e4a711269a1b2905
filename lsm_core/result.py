"""What came of a run: a result with figures, or a failure with its reason."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from lsm_core.names import PresetName

Kind = TypeVar("Kind", bound="Outcome")

PUBLISHED = ("official", "exported")
"""Origins of data that a benchmark has beside those of its solver; given data have no other."""
ALONE = ("train", "retrain")
"""What runs are part of that were made one by one: their suites have no preset in their names."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What one epoch showed; errors are mean relative L2 norms."""

    epoch: int
    train: float
    validation: float | None = None
    test: float | None = None
    """Measured only where test samples choose the epoch."""
    learning_rate: float
    seconds: float
    samples_per_second: float
    peak_bytes: int
    at: int | None = None
    """When it ended, in milliseconds since 1970; older runs do not say."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The epoch with the least error on the samples that choose."""

    epoch: int
    error: float


@dataclass(frozen=True, kw_only=True)
class DatasetName:
    """Which dataset a run was trained on: what it is called, and the hash of its content."""

    name: str
    digest: str


EARLIER_TRAINING = {
    **{"updates": 0, "optimizer": "adam", "decayed": "all", "gradient_clip": 0.0},
    **{"averaging": 0.0, "derivative_weight": 0.0, "teacher_forcing": False, "frame_noise": 0.0},
}
"""How was trained before recipes were settings; runs of that time do not say it."""


EARLIER_POINTS = {"n_fields": 0, "averaged": False}
"""What grid models on points were before they took fields, and points that differ in number."""


def _completed(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings of a run with all that is said of it today."""
    training, model = settings.get("training", {}), settings.get("model", {})
    is_whole = "learning_rate" in training
    said = {"training": {**EARLIER_TRAINING, **training}} if is_whole else {}
    if "latent_shape" in model:
        said["model"] = {**EARLIER_POINTS, **model}
    return {**settings, **said}


RESTORED: dict[str, Callable[[Any], Any]] = {
    "resolution": tuple,
    "begun_anew": tuple,
    "best": lambda plain: Best(**plain) if plain else None,
    "history": lambda plain: tuple(Epoch(**epoch) for epoch in plain),
    "dataset": lambda plain: DatasetName(**plain),
    "settings": _completed,
}
"""How fields come back that are no plain data."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Which run it was: what results and failures have in common.

    Runs are compared within a suite: those of one study, preset and kind of data.
    """

    identity: str
    protocol: str
    study: str
    """`benchmark`, the name of a study, or one of ALONE."""
    preset: PresetName
    origin: str = "generated"
    """Where the samples come from: our solvers, published files, or files written like those."""
    benchmark: str
    resolution: tuple[int, ...]
    model: str
    setting: str = ""
    """What the run is called in its study, where model and benchmark do not tell."""
    seed: int
    fraction: float = 1.0
    source: str | None = None
    """Identity of the run from whose weights this one started."""

    @property
    def suite(self) -> str:
        """Return what the runs that are compared with this one are called together."""
        return suite_name(self.study, self.preset, self.origin in PUBLISHED)

    def to_plain(self) -> dict[str, Any]:
        """Return all fields as plain data, with the suite's name for whoever reads the file."""
        return {**asdict(self), "suite": self.suite}

    @classmethod
    def from_plain(cls: type[Kind], plain: Mapping[str, Any]) -> Kind:
        """Return the outcome that `to_plain` wrote, or an older version."""
        known = {field.name: plain[field.name] for field in fields(cls) if field.name in plain}
        if "study" not in known:
            known["study"] = earlier_study(str(plain.get("suite") or "train"), plain["preset"])
        restored = {name: RESTORED[name](known[name]) for name in known.keys() & RESTORED.keys()}
        return cls(**known | restored)


@dataclass(frozen=True, kw_only=True)
class Begun(Outcome):
    """A run from its first day on: what it rests on, and when it was begun."""

    dataset: DatasetName
    code: str
    settings: Mapping[str, Any]
    started: int
    """In milliseconds since 1970."""
    device: str = ""
    """What it was begun on; older runs do not say."""


@dataclass(frozen=True, kw_only=True)
class Failure(Outcome):
    """A run that did not end well."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Result(Outcome):
    """A finished run: its figures, its history and all that they rest on."""

    validation: Mapping[str, float]
    test: Mapping[str, float]
    """Figures by name; `rel_l2`, the mean relative L2 norm, is always there."""
    parameters: int
    mean_prediction: float | None
    """Error of always predicting the mean of the training targets: the least to beat."""
    seconds_per_epoch: float
    peak_bytes: int = 0
    epochs: int
    n_train: int
    updates: int | None = None
    """Steps of the optimiser; older runs say neither this nor the two below."""
    samples_seen: int | None = None
    """Training samples that passed through the model, each as often as it did."""
    flops: float | None = None
    """Floating-point operations of the training: three forward passes for each of them."""
    selection: str = "last"
    best: Best | None = None
    begun_anew: tuple[str, ...] = ()
    """Parts of the model that its source did not have."""
    history: tuple[Epoch, ...] = ()
    dataset: DatasetName
    code: str
    settings: Mapping[str, Any]
    """The protocol as plain data, from which the experiment can be made again."""
    environment: Mapping[str, Any]
    finished: str

    ERROR: ClassVar[str] = "rel_l2"

    @property
    def error(self) -> float:
        """Return the mean relative L2 norm on the test samples."""
        return self.test[self.ERROR]


def outcome_from_plain(plain: Mapping[str, Any]) -> Result | Failure:
    """Return the result or the failure that plain data is of."""
    return Failure.from_plain(plain) if "error" in plain else Result.from_plain(plain)


def marked(name: str, origin: str) -> str:
    """Return a name that tells official data from ours; these and given ones need no mark."""
    return f"{name}, {origin} data" if origin in PUBLISHED else name


def suite_name(study: str, preset: str, official: bool) -> str:
    """Return what the runs of a study at a preset, on a kind of data, are called together."""
    return study if study in ALONE else f"{study}-{preset}{'-official' if official else ''}"


def earlier_study(suite: str, preset: str) -> str:
    """Return the study of a suite that was kept before studies had a field of their own."""
    return suite.removesuffix("-official").removesuffix(f"-{preset}")
