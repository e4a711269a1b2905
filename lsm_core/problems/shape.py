"""The size of a learning problem, all that a model needs to know of its data."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ProblemShape:
    """A map from fields `(batch, *space, n_inputs)` to fields `(batch, *space, n_outputs)`."""

    space: tuple[int, ...]
    n_inputs: int
    n_outputs: int

    @property
    def n_dims(self) -> int:
        """Return the number of axes of space."""
        return len(self.space)
