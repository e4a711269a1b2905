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
  far more points there than attention is worth its time for. With these waves the model learns as
  fast as an FNO and bears its rates; without them neither. On periodic problems they are the layer
  of an FNO itself. Elsewhere they are added: the field that has ends is no sum of waves, and what
  stands between them would be lost.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import pi
from typing import Literal

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
)
from lsm_core.layers.shapes import Field, Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

Waves = Literal["added", "mapped"]
N_WAVE_SCALES = 2
"""Scales whose tokens are waves, finest first; all others have tokens by attention."""


@dataclass(frozen=True, kw_only=True)
class LsmOursConfig:
    """Everything that can be chosen about it.

    The channels are `width` times 1, 2, 4, 8, 8, ... from the finest scale on.
    """

    width: int = 16
    n_scales: int = 4
    n_tokens: int = 16
    """Of each scale that has tokens by attention; 0 for none."""
    n_basis: int = 24
    n_waves: int = 12
    """Waves along each axis, of both signs, at the two finest scales; 0 for none."""
    waves: Waves = "added"
    """Whether what the waves say is added to the field, or takes its place."""
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
        return tuple(self.width * min(2**scale, 8) for scale in range(self.n_scales))


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

    With F to the modes up to `n_waves` along every axis:

        added:   y = x + gelu(W F^-1 R F x)
        mapped:  y = gelu(F^-1 R F x + W x)
    """

    def __init__(self, config: LsmOursConfig, n_dims: int, width: int) -> None:
        super().__init__()
        self.is_added = config.waves == "added"
        self.spectral = SpectralResampling(width, width, (config.n_waves,) * n_dims)
        self.mixed = nn.Linear(width, width)
        if self.is_added:
            self.spectral.weight.data *= BRANCH

    def forward(self, field: Field) -> Field:
        """Return the field and what its waves say."""
        if self.is_added:
            return field + functional.gelu(self.mixed(self.spectral(field)))
        return functional.gelu(self.spectral(field) + self.mixed(field))


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
            if config.n_tokens and scale >= N_WAVE_SCALES
            else nn.Identity()
            for scale, width in enumerate(widths[1:], start=1)
        )
        self.refine = nn.ModuleList(nn.Linear(b, a) for a, b in pairwise(widths))
        self.up = nn.ModuleList(ResidualBlock(n_dims, width, *ways) for width in widths[:-1])
        self.waves = nn.ModuleList(
            WaveBlock(config, n_dims, width)
            if config.n_waves and scale < N_WAVE_SCALES
            else nn.Identity()
            for scale, width in enumerate(widths)
        )
        self.last_waves = WaveBlock(config, n_dims, widths[0]) if config.n_waves else nn.Identity()
        self.head = Head(widths[0], config.head_width, shape.n_outputs)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        coordinates = self.coordinates.to(field.dtype).expand(len(field), *self.coordinates.shape)
        inputs = pad_to(torch.cat([field, coordinates], dim=-1), self.padded, self.boundary)
        scales = self.solved_scales(self.lift(inputs))
        return self.head(crop_to(self.merged(scales), self.space))

    def solved_scales(self, finest: Field) -> list[Tensor]:
        """Return the features of every scale after their solving process, by waves or by tokens."""
        first, *others = self.waves
        scales = [first(finest)]
        blocks = zip(self.coarsen, self.down, self.solve, others, strict=True)
        for coarsen, block, solve, waves in blocks:
            scales.append(waves(solve(block(coarsen(pool(scales[-1], "average"))))))
        return scales

    def merged(self, scales: list[Tensor]) -> Tensor:
        """Return the finest scale with every coarser one merged into it, and its last waves."""
        *finer, features = scales
        for number in reversed(range(len(finer))):
            coarse = doubled(self.refine[number](features), self.boundary)
            features = self.up[number](finer[number] + coarse)
        return self.last_waves(features)


def preset(task: Task) -> LsmOursConfig:
    """Return the model of a preset, of at most the size of FNO's.

    On periodic problems, whose fields are smooth, it has no normalisation and no coordinates.
    """
    width, n_waves, n_scales = {1: (16, 24, 3), 2: (12, 12, 4)}.get(task.n_dims, (8, 3, 4))
    config = LsmOursConfig(width=width, n_scales=n_scales, n_waves=n_waves)
    if task.is_periodic:
        config = replace(
            config,
            normalization="none",
            waves="mapped",
            boundary="circular",
            has_coordinates=False,
        )
    return task.choose(
        smoke=replace(config, width=8, n_scales=3, n_waves=min(n_waves, 8)),
        quick=config,
        published=replace(config, width=2 * width, n_scales=5),
    )


MODEL = ModelEntry(config=LsmOursConfig, network=LsmOurs, preset=preset)
