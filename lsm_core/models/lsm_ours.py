"""A Latent Spectral Model as we would use it ourselves, in any dimension.

What is the paper's: features at several resolutions, and at each of them the field is projected to
a few latent tokens, solved for there by a series of sines and cosines, and projected back. What is
not:

- residual blocks, each behind a normalisation of the whole sample: it mixes no samples, keeps what
  is large and small within one, and lets the blocks be trained at high rates;
- no patches: tokens are those of the whole field at every scale, so that no edges show, distant
  points exchange, and the cost is linear in the points;
- tokens that differ from the first step on, by keys of the size of the features: of the released
  ones, which begin near zero, all are the mean of the field at first;
- coordinates only where the problem has ends; a periodic axis has none, and its last point is the
  neighbour of its first in every layer;
- coarse points are the middles of the cells that they stand for, on the way down and up.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import pi
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.by_dimension import CONVOLUTION_LAYERS, pool
from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.head import Head
from lsm_core.layers.kernels.convolution import convolve_prepared
from lsm_core.layers.padding import Boundary, check_padding, crop_to, pad_to, padded_shape
from lsm_core.layers.shapes import Features, Field, Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

FEW_TAPS = 3
"""Points of a kernel up to which a convolution is one product of neighbours side by side: on one
axis that is 2 to 4 times as fast as the kernels for planes."""
BRANCH = 0.3
"""Size of what a residual block adds at first, as a part of what convolutions usually give."""


@dataclass(frozen=True, kw_only=True)
class LsmOursConfig:
    """Everything that can be chosen about it.

    The channels are `width` times 1, 2, 4, 8, 8, ... from the finest scale on.
    """

    width: int = 32
    n_scales: int = 5
    n_tokens: int = 16
    n_basis: int = 24
    head_width: int = 128
    normalization: Literal["sample", "none"] = "sample"
    boundary: Boundary = "zero"
    has_coordinates: bool = True

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(1, self, "width", "n_tokens", "head_width")
        check_at_least(2, self, "n_scales")
        if self.n_basis < 0 or self.n_basis % 2:
            raise ValueError(f"n_basis must be even and not negative, got {self.n_basis}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the channels of every scale, finest first."""
        return tuple(self.width * min(2**scale, 8) for scale in range(self.n_scales))


class ResidualBlock(nn.Module):
    """x + conv(gelu(conv(normalised x))), with convolutions that are 3 wide."""

    def __init__(self, config: LsmOursConfig, n_dims: int, width: int) -> None:
        super().__init__()
        self.boundary, self.normalization = config.boundary, config.normalization
        layer = CONVOLUTION_LAYERS[n_dims]
        self.first, self.second = (layer(width, width, kernel_size=3) for _ in range(2))
        for convolution, gain in ((self.first, 1.0), (self.second, BRANCH)):
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(convolution.bias)
            convolution.weight.data *= gain

    def forward(self, field: Field) -> Field:
        """Return the features after the block."""
        prepared = field if self.normalization == "none" else normalized(field)
        hidden = convolved(prepared, lambda same: same, self.first, self.boundary)
        return field + convolved(hidden, functional.gelu, self.second, self.boundary)


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


class LsmOurs(nn.Module):
    """The multiscale network on a regular grid.

    A grid is continued to a size that can be halved between the scales. A channel of ones, zeros
    in what was added, tells the model where it ends.
    """

    coordinates: Tensor

    def __init__(self, config: LsmOursConfig, shape: ProblemShape) -> None:
        super().__init__()
        widths, n_dims = config.widths, shape.n_dims
        self.space, self.boundary = shape.space, config.boundary
        self.padded = padded_shape(shape.space, (2 ** (config.n_scales - 1),) * n_dims)
        check_padding(shape.space, self.padded, f"{config.n_scales} scales")
        known = [torch.ones(*shape.space, 1)]
        known += [unit_coordinates(shape.space)] if config.has_coordinates else []
        self.register_buffer("coordinates", torch.cat(known, dim=-1), persistent=False)
        self.lift = nn.Linear(shape.n_inputs + self.coordinates.shape[-1], widths[0])
        self.coarsen = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.down = nn.ModuleList(ResidualBlock(config, n_dims, width) for width in widths[1:])
        self.solve = nn.ModuleList(LatentSpectralBlock(config, width) for width in widths[1:])
        self.refine = nn.ModuleList(nn.Linear(b, a) for a, b in pairwise(widths))
        self.up = nn.ModuleList(ResidualBlock(config, n_dims, width) for width in widths[:-1])
        self.head = Head(widths[0], config.head_width, shape.n_outputs)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        coordinates = self.coordinates.to(field.dtype).expand(len(field), *self.coordinates.shape)
        inputs = pad_to(torch.cat([field, coordinates], dim=-1), self.padded, self.boundary)
        scales = self.solved_scales(self.lift(inputs))
        return self.head(crop_to(self.merged(scales), self.space))

    def solved_scales(self, finest: Field) -> list[Tensor]:
        """Return the features of every scale, the coarser ones after their solving process.

        The finest has the most points and the fewest channels: it would take a third of the time.
        """
        scales = [finest]
        for coarsen, block, solve in zip(self.coarsen, self.down, self.solve, strict=True):
            scales.append(solve(block(coarsen(pool(scales[-1], "average")))))
        return scales

    def merged(self, scales: list[Tensor]) -> Tensor:
        """Return the finest scale with every coarser one merged into it."""
        *finer, features = scales
        for number in reversed(range(len(finer))):
            coarse = doubled(self.refine[number](features), self.boundary)
            features = self.up[number](finer[number] + coarse)
        return features


def normalized(field: Field) -> Field:
    """Return each sample with mean zero and deviation one over all its points and channels."""
    return functional.layer_norm(field, field.shape[1:])


def convolved(
    field: Field,
    prepare: Callable[[Tensor], Tensor],
    layer: nn.Module,
    boundary: Boundary,
) -> Features:
    """Return the convolution of the prepared field."""
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    if weight[0, 0].numel() > FEW_TAPS:
        return convolve_prepared(prepare, (field,), weight, bias, boundary)
    prepared = prepare(field)
    before, after = neighbours(prepared, 1, boundary, repeats_ends=False)
    matrix = weight.permute(2, 1, 0).flatten(0, 1)
    return torch.cat([before, prepared, after], dim=-1) @ matrix + bias


def doubled(field: Field, boundary: Boundary) -> Float[Tensor, "batch *fine channel"]:
    """Return a field of twice as many points an axis, linear between the middles of its cells.

    Beyond the ends of an axis that is not periodic the field is constant.
    """
    for axis in range(1, field.ndim - 1):
        before, after = neighbours(field, axis, boundary, repeats_ends=True)
        halves = torch.lerp(field, before, 0.25), torch.lerp(field, after, 0.25)
        field = torch.stack(halves, dim=axis + 1).flatten(axis, axis + 1)
    return field


def neighbours(
    field: Field, axis: int, boundary: Boundary, *, repeats_ends: bool
) -> tuple[Field, Field]:
    """Return at every point the value of the point before it, and of the one after it.

    Beyond the ends of an axis that is not periodic there are zeros, or the ends themselves.
    """
    if boundary == "circular":
        return field.roll(1, axis), field.roll(-1, axis)
    n_others = field.shape[axis] - 1
    ends = field.narrow(axis, 0, 1), field.narrow(axis, n_others, 1)
    first, last = ends if repeats_ends else map(torch.zeros_like, ends)
    before = torch.cat([first, field.narrow(axis, 0, n_others)], dim=axis)
    after = torch.cat([field.narrow(axis, 1, n_others), last], dim=axis)
    return before, after


def preset(task: Task) -> LsmOursConfig:
    """Return the model of a preset, of about the size of FNO's.

    On periodic problems, whose fields are smooth, it has no normalisation in its residual blocks
    and no coordinates.
    """
    width = {1: 16, 2: 14}.get(task.n_dims, 8)
    config = LsmOursConfig(
        width=width,
        normalization="none" if task.is_periodic else "sample",
        boundary="circular" if task.is_periodic else "zero",
        has_coordinates=not task.is_periodic,
    )
    return task.choose(
        smoke=replace(config, width=8, n_scales=3),
        quick=replace(config, n_scales=4 if task.n_dims == 3 else 5),
        published=replace(config, width=2 * width),
    )


MODEL = ModelEntry(config=LsmOursConfig, network=LsmOurs, preset=preset)
