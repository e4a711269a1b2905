"""Koopman Neural Operator (Xiong et al., 2023), in any dimension.

    observables = tanh(E u),   u_next = D tanh((I + K)^r observables + W observables)

E, W and D are pointwise and linear. K acts on the low Fourier modes; W carries the high ones. The
original also decodes the observables to the input, as an additional loss; here all models are
trained with one loss, and that output does not exist.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.fourier_modes import modes_of_axes
from lsm_core.layers.koopman import KoopmanOperator
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

    def forward(
        self, field: Float[Tensor, "batch *space frame"]
    ) -> Float[Tensor, "batch *space output"]:
        """Return the next frames."""
        observables = torch.tanh(self.encoder(field))
        evolved = self.koopman(observables, self.n_steps)
        return self.decoder(torch.tanh(evolved + self.high_frequencies(observables)))
