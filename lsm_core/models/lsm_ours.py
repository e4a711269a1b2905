"""A Latent Spectral Model as we would use it ourselves, in any dimension.

What is the paper's: features at several resolutions, and at the coarser ones the field is projected
to a few latent tokens, solved for there by a series of sines and cosines, and projected back. What
is not:

- residual blocks, each behind a normalisation of every channel over the points of its sample: it
  mixes no samples and makes what a block adds independent of the features' size. On Darcy flow it
  halves the error of a short training beside one of the whole sample. Smooth periodic fields are
  better off without;
- no patches: tokens are those of the whole field, so that no edges show, distant points exchange,
  and the cost is linear in the points;
- tokens that differ from the first step on, by keys of the size of the features: of the released
  ones, which begin near zero, all are the mean of the field at first;
- coordinates only where the problem has ends; a periodic axis has none, and its last point is the
  neighbour of its first in every layer;
- coarse points are the middles of the cells that they stand for, on the way down and up;
- at the two finest scales the tokens are the lowest waves of the field, each with a map of its own:
  far more points there than attention is worth its time for. Two such blocks on the way down and
  two on the way up at the finest scale, one and one at the next, all of them added to the field,
  and little at first. In the field's place, or of full size at first, they learn more slowly
  (`tests/measurements/results/residual_waves.md`).

Two weaknesses are known, and measured there: what is the same at all points of a sample is lost in
a normalised h; and where fields are not normalised, trainings of 25,000 updates may break down at
the recipe's rate (one of four runs on Burgers).
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.by_dimension import pool
from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.fourier_modes import SpectralResampling
from lsm_core.layers.head import Head
from lsm_core.layers.padding import Boundary, check_padding, crop_to, pad_to, padded_shape
from lsm_core.layers.residual_block import (
    BRANCH,
    ChannelNormalization,
    ResidualBlock,
    doubled,
    normalized,
    normalized_channels,
)
from lsm_core.layers.shapes import Field, Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

WAVE_BLOCKS = (2, 1)
"""On the way down and again on the way up, at the finest scales; all others have tokens by
attention."""


@dataclass(frozen=True, kw_only=True)
class LsmOursConfig:
    """Everything that can be chosen about it.

    The channels are `width` times 1, 1, 2, 4, 8, 8, ... from the finest scale on.
    """

    width: int = 16
    n_scales: int = 4
    n_tokens: int = 16
    """Of each scale that has tokens by attention; 0 for none."""
    n_basis: int = 24
    n_waves: int = 12
    """Waves along each axis, of both signs, at the finest scale, and half as many at the next; 0
    for none."""
    head_width: int = 64
    normalization: ChannelNormalization = "instance"
    boundary: Boundary = "zero"
    has_coordinates: bool = True

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(1, self, "width", "head_width")
        check_at_least(2, self, "n_scales")
        check_at_least(0, self, "n_waves", "n_tokens")
        if self.n_basis < 0 or self.n_basis % 2:
            raise ValueError(f"n_basis must be even and not negative, got {self.n_basis}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the channels of every scale, finest first."""
        return tuple(self.width * min(2 ** max(0, n - 1), 8) for n in range(self.n_scales))


class LatentSpectralBlock(nn.Module):
    """The solving process on a whole field: to latent tokens, solve, and back.

    With h the normalised field, p its points and m the tokens:

        T_m = V sum over p of softmax_p(k_m . h(p)) h(p)
        T'  = T + sum over k of a_k sin(pi k T / n) + b_k cos(pi k T / n),    k = 1 .. n
        y(p) = x(p) + sum over m of softmax_m(h(p) . Q T'_m / sqrt(width)) W T'_m
    """

    frequencies: Tensor

    def __init__(self, config: LsmOursConfig, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(width, config.n_tokens, bias=False)
        nn.init.normal_(self.key.weight, std=width**-0.5)
        self.value, self.back = nn.Linear(width, width), nn.Linear(width, width)
        # A bias would add the same to the scores of all tokens.
        self.query = nn.Linear(width, width, bias=False)
        self.back.weight.data *= BRANCH
        half = config.n_basis // 2
        self.sine_weights = nn.Parameter(torch.randn(width, half) / max(1, config.n_basis))
        self.cosine_weights = nn.Parameter(torch.randn(width, half) / max(1, config.n_basis))
        steps = torch.arange(1, half + 1) * (pi / max(1, half))
        self.register_buffer("frequencies", steps, persistent=False)

    def forward(self, field: Field) -> Field:
        """Return the field, solved for."""
        points = normalized(field).flatten(1, -2)
        attention = torch.softmax(self.key(points), dim=1)  # (batch, point, token)
        tokens = self.solved(self.value(attention.mT @ points))
        scores = points @ self.query(tokens).mT * points.shape[-1] ** -0.5
        back = torch.softmax(scores, dim=2) @ self.back(tokens)
        return field + back.view(field.shape)

    def solved(
        self, tokens: Float[Tensor, "batch token channel"]
    ) -> Float[Tensor, "batch token channel"]:
        """Return the tokens plus their series.

        Tokens are few, so that the whole basis is written down at once.
        """
        angles = tokens.unsqueeze(-1) * self.frequencies.to(tokens.dtype)
        waves = torch.sin(angles) * self.sine_weights + torch.cos(angles) * self.cosine_weights
        return tokens + waves.sum(-1)


class WaveBlock(nn.Module):
    """The lowest waves of a field as its tokens, each with a map R of its own.

    With h the normalised field and F to its modes up to `n_waves` along every axis:

        y = x + V gelu(F^-1 R F h + W h),    V = 1 at first

    Without V hardly anything is ever taken away from a field, and where none is normalised long
    trainings break down. With V of the usual random kind they begin slowly.
    """

    def __init__(
        self, n_dims: int, width: int, n_waves: int, normalization: ChannelNormalization
    ) -> None:
        super().__init__()
        self.normalization = normalization
        self.spectral = SpectralResampling(width, width, (n_waves,) * n_dims)
        self.spectral.weight.data *= BRANCH
        self.mixed, self.back = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.eye_(self.back.weight)
        nn.init.zeros_(self.back.bias)

    def forward(self, field: Field) -> Field:
        """Return the field and what its waves say."""
        prepared = field if self.normalization == "none" else normalized_channels(field)
        waves = functional.gelu(self.spectral(prepared) + self.mixed(prepared))
        return field + self.back(waves)


def wave_blocks(config: LsmOursConfig, n_dims: int, scale: int) -> nn.Sequential:
    """Return the blocks of waves of a scale, for one of the two ways; none at coarse ones."""
    n_blocks = WAVE_BLOCKS[scale] if config.n_waves and scale < len(WAVE_BLOCKS) else 0
    n_waves = max(1, config.n_waves // 2**scale)
    ways = config.widths[scale], n_waves, config.normalization
    return nn.Sequential(*(WaveBlock(n_dims, *ways) for _ in range(n_blocks)))


class LsmOurs(nn.Module):
    """The multiscale network on a regular grid.

    A grid is continued to a size that can be halved between the scales. A channel of ones, zeros
    in what was added, tells the model where it ends.
    """

    coordinates: Tensor

    def __init__(self, config: LsmOursConfig, shape: ProblemShape) -> None:
        super().__init__()
        widths, n_dims = config.widths, shape.n_dims
        ways = config.boundary, config.normalization
        self.space, self.boundary = shape.space, config.boundary
        self.padded = padded_shape(shape.space, (2 ** (config.n_scales - 1),) * n_dims)
        check_padding(shape.space, self.padded, f"{config.n_scales} scales")
        known = [torch.ones(*shape.space, 1)]
        known += [unit_coordinates(shape.space)] if config.has_coordinates else []
        self.register_buffer("coordinates", torch.cat(known, dim=-1), persistent=False)
        self.lift = nn.Linear(shape.n_inputs + self.coordinates.shape[-1], widths[0])
        self.coarsen = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.down = nn.ModuleList(ResidualBlock(n_dims, width, *ways) for width in widths[1:])
        self.solve = nn.ModuleList(
            LatentSpectralBlock(config, width)
            if config.n_tokens and scale >= len(WAVE_BLOCKS)
            else nn.Identity()
            for scale, width in enumerate(widths[1:], start=1)
        )
        self.refine = nn.ModuleList(nn.Linear(b, a) for a, b in pairwise(widths))
        self.up = nn.ModuleList(ResidualBlock(n_dims, width, *ways) for width in widths[:-1])
        self.waves_down, self.waves_up = (
            nn.ModuleList(wave_blocks(config, n_dims, scale) for scale in range(n_scales))
            for n_scales in (len(widths), len(widths) - 1)
        )
        self.head = Head(widths[0], config.head_width, shape.n_outputs)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        coordinates = self.coordinates.to(field.dtype).expand(len(field), *self.coordinates.shape)
        inputs = pad_to(torch.cat([field, coordinates], dim=-1), self.padded, self.boundary)
        scales = self.solved_scales(self.lift(inputs))
        return self.head(crop_to(self.merged(scales), self.space))

    def solved_scales(self, finest: Field) -> list[Tensor]:
        """Return the features of every scale after their solving process, by waves or by tokens."""
        first, *others = self.waves_down
        scales = [first(finest)]
        blocks = zip(self.coarsen, self.down, self.solve, others, strict=True)
        for coarsen, block, solve, waves in blocks:
            scales.append(waves(solve(block(coarsen(pool(scales[-1], "average"))))))
        return scales

    def merged(self, scales: list[Tensor]) -> Tensor:
        """Return the finest scale with every coarser one merged into it, solved by waves again."""
        *finer, features = scales
        for number in reversed(range(len(finer))):
            coarse = doubled(self.refine[number](features), self.boundary)
            features = self.waves_up[number](self.up[number](finer[number] + coarse))
        return features


def preset(task: Task) -> LsmOursConfig:
    """Return the model of a preset, of at most the size of FNO's.

    On periodic problems, whose fields are smooth, it has no normalisation and no coordinates.
    """
    width, n_waves, n_scales = {1: (24, 16, 3), 2: (16, 12, 4)}.get(task.n_dims, (8, 6, 4))
    config = LsmOursConfig(width=width, n_scales=n_scales, n_waves=n_waves)
    if task.is_periodic:
        config = replace(config, normalization="none", boundary="circular", has_coordinates=False)
    return task.choose(
        smoke=replace(config, width=8, n_scales=3, n_waves=min(n_waves, 8)),
        quick=config,
        published=replace(config, width=2 * width, n_scales=5),
    )


MODEL = ModelEntry(config=LsmOursConfig, network=LsmOurs, preset=preset)
