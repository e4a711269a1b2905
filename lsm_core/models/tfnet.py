"""TF-Net (Wang et al., KDD 2020), in any dimension.

Turbulence is split into scales as in large-eddy simulation. A learned spatial filter S and learned
weights w over a window of past frames give three parts of each frame u:

    mean = sum over i of w_i S u_(t-i),      tilde = S u - mean,      prime = u - S u

Each part has an encoder; their features are summed at every scale for one decoder. The penalty on
the divergence and the dropout of the original are left out: all models are trained alike.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.by_dimension import plain_convolution
from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.normalization import NormalizationKind
from lsm_core.layers.shapes import Features, Inputs, Outputs
from lsm_core.layers.strided_convolution import (
    Convolution,
    LeakyConvolution,
    LeakyTransposedConvolution,
)
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

Part = Float[Tensor, "batch *space time"]


@dataclass(frozen=True, kw_only=True)
class TfnetConfig:
    """Everything that can be chosen about a TF-Net.

    The temporal filter looks at `window` frames, or at all if there are fewer. The encoders have
    `width` channels after the first halving and twice as many after each other.
    """

    width: int = 64
    n_scales: int = 4
    window: int = 6
    normalization: NormalizationKind = "batch"

    def __post_init__(self) -> None:
        check_at_least(2, self, "width")
        check_at_least(1, self, "n_scales", "window")
        check_choices(self)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the channels of every scale, finest first."""
        return tuple(self.width * 2**scale for scale in range(self.n_scales))


class ScaleSeparation(nn.Module):
    """Splits a history into mean, tilde and prime.

    The filters start as plain means, with the weights of the frames, oldest first, a little apart:
    else tilde would be zero for a single frame.
    """

    def __init__(self, n_dims: int, n_frames: int, window: int) -> None:
        super().__init__()
        self.window = min(window, n_frames)
        self.n_times = n_frames - self.window + 1
        self.spatial = nn.Parameter(torch.full((1, 1, *[3] * n_dims), 3.0**-n_dims))
        noise = 1 + 0.1 * torch.randn(self.window)
        self.temporal = nn.Parameter(noise / self.window)

    def forward(self, frames: Float[Tensor, "batch *space frame"]) -> tuple[Part, Part, Part]:
        """Return mean, tilde and prime of every frame that has a whole window behind it."""
        alone = frames.movedim(-1, 1).flatten(0, 1).unsqueeze(-1)  # (batch frame, *space, 1)
        filtered = plain_convolution(alone, self.spatial, None, stride=1, padding=1)
        filtered = filtered.squeeze(-1).unflatten(0, (len(frames), -1)).movedim(1, -1)
        mean = filtered.unfold(-1, self.window, 1) @ self.temporal
        latest = slice(frames.shape[-1] - self.n_times, None)
        tilde = filtered[..., latest] - mean
        prime = frames[..., latest] - filtered[..., latest]
        return mean, tilde, prime


class Encoder(nn.Module):
    """Convolutions that halve the resolution and double the channels."""

    def __init__(self, config: TfnetConfig, n_dims: int, n_inputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            LeakyConvolution(n_dims, *channels, stride=2, normalization=config.normalization)
            for channels in pairwise((n_inputs, *config.widths))
        )

    def forward(self, field: Inputs) -> list[Tensor]:
        """Return the features of every scale, finest first."""
        scales: list[Tensor] = []
        for layer in self.layers:
            scales.append(layer(scales[-1] if scales else field))
        return scales


class Decoder(nn.Module):
    """Transposed convolutions from the coarsest scale to the grid, each finer scale added."""

    def __init__(self, config: TfnetConfig, n_dims: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            LeakyTransposedConvolution(n_dims, coarse, fine)
            for fine, coarse in reversed(list(pairwise(config.widths)))
        )
        self.last = LeakyTransposedConvolution(n_dims, config.width, config.width // 2)

    def forward(self, scales: list[Tensor], space: tuple[int, ...]) -> Features:
        """Return the features on the grid."""
        *finer, features = scales
        for layer, scale in zip(self.layers, reversed(finer), strict=True):
            features = layer(features, tuple(scale.shape[1:-1])) + scale
        return self.last(features, space)


class Tfnet(nn.Module):
    """TF-Net on a regular grid; the input channels are the frames of one field, oldest first.

    The weights serve every grid. Coordinates are not among the inputs, as in the original.
    """

    def __init__(self, config: TfnetConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.separation = ScaleSeparation(shape.n_dims, shape.n_inputs, config.window)
        self.encoders = nn.ModuleList(
            Encoder(config, shape.n_dims, self.separation.n_times) for _ in range(3)
        )
        self.decoder = Decoder(config, shape.n_dims)
        n_joined = shape.n_inputs + config.width // 2
        self.output = Convolution(shape.n_dims, n_joined, shape.n_outputs)

    def forward(self, field: Float[Tensor, "batch *space frame"]) -> Outputs:
        """Return the next frames."""
        parts = self.separation(field)
        by_part = [encoder(part) for encoder, part in zip(self.encoders, parts, strict=True)]
        scales = [mean + tilde + prime for mean, tilde, prime in zip(*by_part, strict=True)]
        features = self.decoder(scales, tuple(field.shape[1:-1]))
        return self.output(torch.cat([field, features], dim=-1))


def preset(task: Task) -> TfnetConfig:
    """Return the TF-Net of a preset.

    Small ones have instance normalisation, as is usual for problems that are stepped in time.
    """
    return task.choose(
        smoke=TfnetConfig(width=8, n_scales=2, normalization="instance"),
        quick=TfnetConfig(width=16, n_scales=3, normalization="instance"),
        published=TfnetConfig(),
    )


MODEL = ModelEntry(config=TfnetConfig, network=Tfnet, preset=preset, needs_history=True)
