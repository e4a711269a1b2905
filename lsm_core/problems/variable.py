"""What one named array of a sample means."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["input", "target", "coordinate", "parameter"]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One named array of every sample: its axes, its part in the problem and its unit.

    `dims` and `shape` leave out the sample axis. An input or target starts with the axes of space;
    axes after those (time, channel) become channels of the model.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    role: Role
    unit: str = "1"
    description: str = ""

    def __post_init__(self) -> None:
        if len(self.dims) != len(self.shape):
            raise ValueError(
                f"variable {self.name} has {len(self.dims)} dimensions {self.dims} "
                f"but a shape of {len(self.shape)} numbers {self.shape}"
            )
