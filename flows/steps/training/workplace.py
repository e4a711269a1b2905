"""Where runs find their data and leave their results. Free of torch and MLflow: they take long."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.steps.results import result_in
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

if TYPE_CHECKING:
    from torch import Tensor

    from flows.settings import Settings
    from storage.tracking.store import Tracking


VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    """Room for one training: the device that it is told, and the GPUs that its processes see."""

    device: str
    visible: str | None = None
    """What CUDA_VISIBLE_DEVICES is to be in them; None leaves it as it is."""

    @property
    def environment(self) -> dict[str, str]:
        """Return what is set before its processes start, and with them CUDA."""
        return {} if self.visible is None else {VISIBLE: self.visible}

    def __str__(self) -> str:
        if self.device != "cuda" or not self.visible:
            return self.device
        numbers = self.visible.split(",")
        return f"cuda, GPU{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)}"


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where a run finds its data and leaves its results; plain values that any process can take."""

    root: Location
    dataset: Location
    tracking_uri: str
    study: str
    """What the run is part of."""
    setting: str = ""
    """What the run is called in its study, where model and benchmark do not tell."""
    n_threads: int
    """Of each process."""
    slot: Slot = Slot("auto")
    memory: int = 2**32

    def checkpoints(self, identity: str) -> Checkpoints:
        """Return the folder of a run."""
        return Checkpoints(self.root / "checkpoints" / identity)

    def tracking(self) -> "Tracking":
        """Return the tracking store."""
        from storage.tracking.store import open_tracking  # with MLflow, which takes seconds

        return open_tracking(self.tracking_uri, self.root)


def workplace(
    settings: "Settings",
    dataset_url: str,
    study: str,
    n_threads: int,
    setting: str = "",
    slot: Slot | None = None,
) -> Workplace:
    """Return where a cell finds its data and leaves its results."""
    return Workplace(
        root=settings.root,
        dataset=Location(dataset_url),
        tracking_uri=settings.tracking_uri,
        study=study,
        setting=setting,
        n_threads=n_threads,
        slot=slot or Slot(settings.device),
        memory=settings.memory,
    )


def selected_weights(checkpoints: Checkpoints) -> dict[str, "Tensor"]:
    """Return the weights that are the result of a finished run, by name."""
    from safetensors.torch import load

    from lsm_core.training.state import model_weights

    result = result_in(checkpoints)
    if result is None:
        raise ValueError(f"there is no finished run in {checkpoints.location} to start from")
    if result.selection != "last":
        return load(checkpoints.best())
    content = checkpoints.latest()
    if content is None:
        raise ValueError(f"the run in {checkpoints.location} has no weights to start from")
    return model_weights(content)
