"""Transolver (Wu et al., ICML 2024): attention between slices of the domain, in any dimension.

A slice is a soft set of points. With f and g two projections of the features u, S a linear map and
a temperature tau a head,

    w_nm = softmax over slices m of (S g_n)_m / tau
    z_m  = sum_n w_nm f_n / (sum_n w_nm + 1e-5)
    z'   = softmax(Q K^T / sqrt(e)) V,    Q, K, V linear in z, e channels a head
    A(u)_n = P sum_m w_nm z'_m

so that points cost what slices cost, not their square. Where points have neighbours the projections
are convolutions, three points wide: they are three quarters of the parameters, and on grids they
carry the accuracy.

What the released code does and is not repeated here. On plasticity it gives 99.65 % of the points
another point's coordinates: it builds them in the order `xy` for an array in the order `ij`. It
begins the slices with an orthogonal matrix and then overwrites it: here they begin as they really
did, with a truncated normal. A grid with input values never reads its `placeholder`, which is left
out. Transolver++ draws noise in evaluation, too, so that two passes differ; nothing is drawn here.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.positions import PositionConfig, Positions, at_real_points
from lsm_core.layers.shapes import Field, Inputs, Outputs
from lsm_core.layers.strided_convolution import Convolution
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

Projection = Literal["convolution", "linear"]
EMPTY_SLICE = 1e-5
"""Added to the weight of a slice before it divides."""
COLDEST, HOTTEST = 0.1, 5.0
"""Between these is the temperature of slices on grids; on points it is free."""


@dataclass(frozen=True, kw_only=True)
class TransolverConfig:
    """Everything that can be chosen about a Transolver.

    The hidden layer of the feed-forward network is `expansion` times as wide as the features.
    `projection` is `linear` where points are in no order, and may be on grids.
    """

    width: int = 128
    n_layers: int = 8
    n_heads: int = 8
    n_slices: int = 64
    expansion: int = 1
    projection: Projection = "convolution"
    positions: PositionConfig = field(default_factory=PositionConfig)

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least(1, self, "width", "n_layers", "n_heads", "n_slices", "expansion")
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} must be a multiple of n_heads {self.n_heads}")


class SliceAttention(nn.Module):
    """Attention between slices, which every point is a part of to some degree."""

    def __init__(self, config: TransolverConfig, n_dims: int) -> None:
        super().__init__()
        width, n_heads = config.width, config.n_heads
        head_width = width // n_heads
        self.n_heads, self.is_clamped = n_heads, config.projection == "convolution"
        if config.projection == "convolution":
            self.feature: nn.Module = Convolution(n_dims, width, width)
            self.guide: nn.Module = Convolution(n_dims, width, width)
        else:
            self.feature = _linear(width, width)
            self.guide = _linear(width, width)
        self.slices = _linear(head_width, config.n_slices)
        self.temperature = nn.Parameter(torch.full((n_heads, 1, 1), 0.5))
        self.query = _linear(head_width, head_width, bias=False)
        self.key = _linear(head_width, head_width, bias=False)
        self.value = _linear(head_width, head_width, bias=False)
        self.output = _linear(width, width)

    def forward(self, field: Field, is_there: Tensor | None = None) -> Field:
        """Return the attended features of every point; what is not there is in no slice."""
        feature, guide = self._by_head(self.feature(field)), self._by_head(self.guide(field))
        weights = self._weights(guide)
        if is_there is not None:
            weights = weights * is_there.flatten(1)[:, None, :, None]
        tokens = weights.mT @ feature / (EMPTY_SLICE + weights.sum(2).unsqueeze(-1))
        attended = functional.scaled_dot_product_attention(
            self.query(tokens), self.key(tokens), self.value(tokens)
        )
        points = (weights @ attended).transpose(1, 2).flatten(2)  # (batch, point, feature)
        return self.output(points).view(field.shape)

    def _weights(
        self, guide: Float[Tensor, "batch head point head_width"]
    ) -> Float[Tensor, "batch head point slice"]:
        """Return how much every point belongs to each slice; all of them add up to one."""
        temperature: Tensor = self.temperature
        if self.is_clamped:
            temperature = temperature.clamp(COLDEST, HOTTEST)
        return (self.slices(guide) / temperature).softmax(-1)

    def _by_head(self, field: Field) -> Float[Tensor, "batch head point head_width"]:
        return field.flatten(1, -2).unflatten(2, (self.n_heads, -1)).transpose(1, 2)


class TransolverLayer(nn.Module):
    """Attention between slices and a feed-forward network, each after a norm and beside a skip."""

    def __init__(self, config: TransolverConfig, n_dims: int) -> None:
        super().__init__()
        width = config.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SliceAttention(config, n_dims)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = _perceptron(width, config.expansion * width, width)

    def forward(self, field: Field, is_there: Tensor | None = None) -> Field:
        """Return the features after the layer."""
        field = field + self.attention(self.attention_norm(field), is_there)
        return field + self.feed_forward(self.feed_forward_norm(field))


class Transolver(nn.Module):
    """Transolver on grids, on meshes and on scattered points; the weights serve every number."""

    placeholder: nn.Parameter | None

    def __init__(self, config: TransolverConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.positions = Positions(config.positions, shape)
        n_inputs = self.positions.n_channels + self.positions.n_values
        self.lift = _perceptron(n_inputs, 2 * config.width, config.width)
        # A vector that all points have in common: of grids only where no values are given.
        if config.projection == "linear" or not self.positions.n_values:
            self.placeholder = nn.Parameter(torch.rand(config.width) / config.width)
        else:
            self.register_parameter("placeholder", None)
        self.layers = nn.Sequential(
            *(TransolverLayer(config, shape.n_dims) for _ in range(config.n_layers))
        )
        self.head = nn.Sequential(
            nn.LayerNorm(config.width), _linear(config.width, shape.n_outputs)
        )

    def forward(self, field: Inputs, is_there: Tensor | None = None) -> Outputs:
        """Return the predicted fields; points that are not there change no other."""
        field = at_real_points(field, is_there)
        features = self.lift(torch.cat(self.positions(field), dim=-1))
        if self.placeholder is not None:
            features = features + self.placeholder
        for layer in self.layers:
            features = layer(features, is_there)
        return self.head(features)


def _perceptron(n_inputs: int, n_hidden: int, n_outputs: int) -> nn.Sequential:
    return nn.Sequential(_linear(n_inputs, n_hidden), nn.GELU(), _linear(n_hidden, n_outputs))


def _linear(n_inputs: int, n_outputs: int, *, bias: bool = True) -> nn.Linear:
    """Return a linear map that begins small and without a shift."""
    layer = nn.Linear(n_inputs, n_outputs, bias=bias)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def preset(task: Task) -> TransolverConfig:
    """Return the Transolver of a preset; the published settings are those of its scripts."""
    published = TransolverConfig(
        width=256 if task.steps_through_time else 128,
        n_slices=32 if task.steps_through_time else 64,
        projection="linear" if task.is_scattered else "convolution",
        positions=task.positions("distances" if task.n_dims < 3 else "index"),
    )
    return task.choose(
        smoke=replace(published, width=16, n_layers=2, n_heads=2, n_slices=8),
        quick=replace(published, width=32, n_layers=4, n_heads=4, n_slices=32),
        published=published,
    )


def _recipe(batch_size: int, clip: float = 0.1, **others: Any) -> dict[str, Any]:
    """Return a released script's training. It clips the gradient of a sum over the batch.

    On elasticity the script has a cosine from the first epoch on in place of one cycle.
    """
    return {
        "epochs": 500,
        "batch_size": batch_size,
        "learning_rate": 1e-3,
        "optimizer": "adamw",
        "weight_decay": 1e-5,
        "schedule": "one_cycle",
        "gradient_clip": clip / batch_size,
        **others,
    }


RECIPES = {
    "elasticity_p": _recipe(1),
    "plasticity": _recipe(8),
    "navier_stokes": _recipe(2, clip=0.0, teacher_forcing=True),
    "darcy": _recipe(4, derivative_weight=0.1),
    "airfoil": _recipe(4),
    "pipe": _recipe(8),
}

MODEL = ModelEntry(
    config=TransolverConfig,
    network=Transolver,
    preset=preset,
    takes_points=True,
    decays=False,
    recipes=RECIPES,
)
