"""What a training step showed, left on the device until somebody looks.

To read a number of a device the host waits for all that was sent there. Without such a wait a step
the host runs ahead of the device, and the device never stands still.
"""

from dataclasses import dataclass
from math import inf, isfinite

from jaxtyping import Float
from torch import Tensor

HOPELESS = 1e4
"""Relative error of a sample beyond which training has lost its way; zero predictions give 1."""


class Diverged(RuntimeError):
    """The loss is no longer a number, or far beyond any that training could come back from."""


@dataclass(frozen=True)
class Outcome:
    """The loss of a step before it, summed over the samples, and the norm of its gradient."""

    numbers: Float[Tensor, "2"]
    n_samples: int

    def read(self) -> tuple[float, float]:
        """Return both as numbers, when the device has found them."""
        loss, norm = self.numbers.tolist()
        return loss, norm

    def stopped_after(self, stopped: Float[Tensor, ""] | None) -> Float[Tensor, ""]:
        """Return 1 if this step or one before it went wrong, else 0, without a wait."""
        loss, norm = self.numbers
        wrong = ((loss <= HOPELESS * self.n_samples) & (norm < inf)).logical_not().to(loss.dtype)
        return wrong if stopped is None else wrong.maximum(stopped)

    def reason_to_stop(self, loss: float, norm: float) -> str | None:
        """Return what went wrong, given the numbers; None if nothing did."""
        if not isfinite(loss):
            return f"the loss became {loss}"
        if not isfinite(norm):
            return f"the gradient became {norm}"
        if loss > HOPELESS * self.n_samples:
            return f"the relative error rose to {loss / self.n_samples:.3g}"
        return None
