"""A Koopman operator: steps of a linear evolution in Fourier space."""

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from lsm_core.layers.fourier_modes import from_modes, map_modes, to_modes


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

    def forward(
        self, field: Float[Tensor, "batch *space channel"], n_steps: int
    ) -> Float[Tensor, "batch *space channel"]:
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
            numbers = [*range(count), *range(count, 0, -1)]
            index = torch.tensor(numbers, device=weight.device)
            weight = torch.cat([weight, beyond], dim=axis).index_select(axis, index)
        real, imaginary = weight.unbind(-1)
        # The two halves of a real field meet where the last wave number is zero. A matrix that
        # serves k and -k there keeps the field real by its real part alone.
        last = torch.arange(used[-1], device=weight.device).view(-1, 1, 1)
        return torch.complex(real, imaginary * (last > 0))
