"""Spectral Neural Operator (Fanaskov and Oseledets, 2022), in any dimension."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.fourier_modes import along_axis
from lsm_core.layers.function_bases import Basis, from_coefficients, to_coefficients
from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

Coefficients = Float[Tensor, "batch *coefficient channel"]


@dataclass(frozen=True, kw_only=True)
class SnoConfig:
    """Everything that can be chosen about an SNO.

    `basis` is `chebyshev`, or `fourier` for periodic problems. `n_coefficients` is one number for
    all axes or one for each.
    """

    width: int = 64
    basis: Basis = "chebyshev"
    n_coefficients: int | tuple[int, ...] = 16
    n_layers: int = 4

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(1, self, "width", "n_coefficients", "n_layers")


class LowRankLayer(nn.Module):
    """A map of all coefficients that is a product of maps along each axis and of the channels.

        softplus(A_x U A_y S + b)

    in two dimensions, with one more matrix for each further one. A full matrix between all
    coefficients would have the square of their number of entries.
    """

    def __init__(self, width: int, n_coefficients: tuple[int, ...]) -> None:
        super().__init__()
        # Most of each coefficient stays where it is; the rest is shared out between the others.
        share = 0.5 / len(n_coefficients)
        self.axes = nn.ParameterList(
            torch.eye(n) + share * torch.randn(n, n) / n**0.5 for n in n_coefficients
        )
        channels = torch.randn(width, width) * (2 / width) ** 0.5
        # Softplus adds about the same number to all values. The sum of the channels is not passed
        # on at first, or these numbers would soon be much larger than what differs from sample
        # to sample, and nothing would be learned.
        self.channels = nn.Parameter(channels - channels.mean(0))
        self.bias = nn.Parameter(torch.zeros(*n_coefficients, width))

    def forward(self, coefficients: Coefficients) -> Coefficients:
        """Return the coefficients after the layer."""
        for axis, matrix in enumerate(self.axes, start=1):
            coefficients = along_axis(matrix, coefficients, axis)
        return functional.softplus(coefficients @ self.channels + self.bias)


class Sno(nn.Module):
    """Spectral Neural Operator on a regular grid.

    The fields are turned into coefficients of a basis, and the network maps coefficients to
    coefficients: it never sees a grid, so its weights serve every one, and what it predicts is a
    polynomial or a sum of waves. The authors take values at Chebyshev points, where the data
    here are on uniform grids, and complex coefficients of waves, where these are real ones of
    sines and cosines.
    """

    def __init__(self, config: SnoConfig, shape: ProblemShape) -> None:
        super().__init__()
        counts, width = config.n_coefficients, config.width
        if isinstance(counts, int):
            counts = (counts,) * shape.n_dims
        if len(counts) != shape.n_dims:
            raise ValueError(
                f"n_coefficients {counts} has not one number for each axis of {shape.space}"
            )
        self.space, self.basis, self.n_coefficients = shape.space, config.basis, counts
        self.encoder = nn.Sequential(
            nn.Linear(shape.n_inputs, width), nn.Softplus(), nn.Linear(width, width)
        )
        self.layers = nn.Sequential(*(LowRankLayer(width, counts) for _ in range(config.n_layers)))
        self.decoder = nn.Sequential(
            nn.Linear(width, width), nn.Softplus(), nn.Linear(width, shape.n_outputs)
        )

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        coefficients = to_coefficients(field, self.basis, self.n_coefficients)
        coefficients = self.decoder(self.layers(self.encoder(coefficients)))
        return from_coefficients(coefficients, self.basis, self.space)


def preset(task: Task) -> SnoConfig:
    """Return the SNO of a preset, in the basis that suits the boundary."""
    config = SnoConfig(basis="fourier" if task.is_periodic else "chebyshev")
    return task.choose(
        smoke=replace(config, width=32),
        quick=replace(config, width=48, n_layers=4),
        published=config,
    )


MODEL = ModelEntry(config=SnoConfig, network=Sno, preset=preset)
