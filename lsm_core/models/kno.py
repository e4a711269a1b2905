"""Koopman Neural Operator (Xiong et al., 2023), in any dimension.

    observables = tanh(E u),   u_next = D tanh((I + K)^r observables + W observables)

E, W and D are pointwise and linear. K acts on the low Fourier modes; W carries the high ones. The
original also decodes the observables to the input, as an additional loss; here all models are
trained with one loss, and that output does not exist.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Complex, Float, Int64
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.constants import kept_on_device
from lsm_core.layers.fourier_modes import from_modes, map_modes, modes_of_axes, to_modes
from lsm_core.layers.shapes import Field, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class KnoConfig:
    """Everything that can be chosen about a KNO.

    `n_modes` is one number for all axes or one for each; `n_steps` is the power r of the operator.
    """

    width: int = 32
    n_modes: int | tuple[int, ...] = 16
    n_steps: int = 8

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_modes", "n_steps")


@kept_on_device
def there_and_back(count: int) -> Int64[np.ndarray, " number"]:
    """Return the sizes of the wave numbers 0 .. m-1, -m .. -1."""
    return np.array([*range(count), *range(count, 0, -1)])


@kept_on_device
def not_zero(count: int) -> Bool[np.ndarray, "mode 1 1"]:
    """Return which of the wave numbers 0 .. m-1 are not zero, one for each matrix of channels."""
    return np.arange(count).reshape(-1, 1, 1) > 0


class KoopmanOperator(nn.Module):
    """The map of a field by I + K, where K is one matrix of channels for each low Fourier mode.

    Modes k and -k along an axis have the same matrix. Higher modes are left as they are. The
    evolution is linear, so r steps and then s steps are r + s steps.
    """

    def __init__(self, width: int, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        self.n_modes = n_modes
        # Real and imaginary parts, because fused optimisers do not take complex numbers.
        self.weight = nn.Parameter(torch.rand(*n_modes, width, width, 2) / width**2)

    def forward(self, field: Field, n_steps: int) -> Field:
        """Return the field after a number of steps.

        All steps are taken between one transform and its inverse, which changes nothing else.
        """
        space = tuple(field.shape[1:-1])
        # Without the highest mode of an even axis, which is its own negative.
        used = tuple(map(min, self.n_modes, [max(1, (size + 1) // 2) for size in space]))
        matrices = self.matrices(used)
        modes = start = to_modes(field, used)
        for _ in range(n_steps):
            modes = modes + map_modes(modes, matrices)
        return field + from_modes(modes - start, space)

    def matrices(self, used: tuple[int, ...]) -> Complex[Tensor, "*mode channel channel"]:
        """Return K of the modes 0 .. m-1, -m .. -1 of each axis but the last, which has 0 .. m-1.

        The mode -m has none when m is the number of modes of the operator.
        """
        weight = self.weight.narrow(len(used) - 1, 0, used[-1])
        for axis, count in enumerate(used[:-1]):
            beyond = torch.zeros_like(weight.narrow(axis, 0, 1))
            index = there_and_back(count, like=weight)
            weight = torch.cat([weight, beyond], dim=axis).index_select(axis, index)
        real, imaginary = weight.unbind(-1)
        # The two halves of a real field meet where the last wave number is zero. A matrix that
        # serves k and -k there keeps the field real by its real part alone.
        return torch.complex(real, imaginary * not_zero(used[-1], like=weight))


class Kno(nn.Module):
    """Koopman Neural Operator on a regular grid; the input channels are the frames of a history.

    The weights serve every grid. Coordinates are not among the inputs, as in the original, so
    that the operator commutes with shifts of a periodic field.
    """

    def __init__(self, config: KnoConfig, shape: ProblemShape) -> None:
        super().__init__()
        modes = modes_of_axes(config.n_modes, shape.space)
        self.n_steps = config.n_steps
        self.encoder = nn.Linear(shape.n_inputs, config.width)
        self.koopman = KoopmanOperator(config.width, modes)
        self.high_frequencies = nn.Linear(config.width, config.width)
        self.decoder = nn.Linear(config.width, shape.n_outputs)

    def forward(self, field: Float[Tensor, "batch *space frame"]) -> Outputs:
        """Return the next frames."""
        observables = torch.tanh(self.encoder(field))
        evolved = self.koopman(observables, self.n_steps)
        return self.decoder(torch.tanh(evolved + self.high_frequencies(observables)))


def preset(task: Task) -> KnoConfig:
    """Return the KNO of a preset."""
    return task.choose(
        smoke=KnoConfig(width=16, n_modes=8, n_steps=4),
        quick=KnoConfig(width=32, n_modes=12, n_steps=6),
        published=KnoConfig(),
    )


MODEL = ModelEntry(config=KnoConfig, network=Kno, preset=preset, needs_history=True)
