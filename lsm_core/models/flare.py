"""FLARE (Puri et al., 2025): attention through learned latent queries, in any dimension.

With keys k and values v of the points and queries q that are weights, not computed,

    z_m = sum over points n of softmax_n(q_m . k_n) v_n
    y_n = sum over latents m of softmax_m(k_n . q_m) z_m

in every head, both ways with the scale 1. Keys and values are residual perceptrons of the features.

What the released code does and is not repeated here: it keeps averaged weights and prints their
error, while the error that it reports is that of the last ones; ours is always that of the weights
that are kept. It stores the queries as a matrix (width, latents) whose memory it reads as
(head, latent, channel), which is no transpose; here they are stored as they are read.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.positions import PositionConfig, Positions, at_real_points
from lsm_core.layers.shapes import Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape

Points = Float[Tensor, "batch point channel"]


@dataclass(frozen=True, kw_only=True)
class FlareConfig:
    """Everything that can be chosen about a FLARE.

    `n_hidden_layers` are those of the perceptrons in its layers, beside their first and last;
    `n_outer_layers` those of lift and head.
    """

    width: int = 64
    n_layers: int = 8
    n_heads: int = 8
    n_latents: int = 64
    n_hidden_layers: int = 3
    n_outer_layers: int = 2
    positions: PositionConfig = field(default_factory=PositionConfig)

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_layers", "n_heads", "n_latents")
        check_at_least(0, self, "n_hidden_layers", "n_outer_layers")
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} must be a multiple of n_heads {self.n_heads}")


class ResidualPerceptron(nn.Module):
    """A pointwise perceptron whose hidden layers add to what they read.

    `skips_first` and `skips_last` say whether the first and the last layer do so, too. GELU is in
    the form with the hyperbolic tangent.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int],
        n_hidden: int,
        *,
        skips_first: bool = True,
        skips_last: bool = True,
    ) -> None:
        super().__init__()
        n_inputs, width, n_outputs = sizes
        self.skips_first, self.skips_last = skips_first, skips_last
        self.first = _linear(n_inputs, width)
        self.hidden = nn.ModuleList(_linear(width, width) for _ in range(n_hidden))
        self.last = _linear(width, n_outputs)

    def forward(
        self, points: Float[Tensor, "batch point input"]
    ) -> Float[Tensor, "batch point output"]:
        """Return the outputs of every point."""
        features = functional.gelu(self.first(points), approximate="tanh")
        if self.skips_first:
            features = features + points
        for layer in self.hidden:
            features = features + functional.gelu(layer(features), approximate="tanh")
        result = self.last(features)
        return result + features if self.skips_last else result


class LatentAttention(nn.Module):
    """Attention from points to learned queries and back, in every head."""

    def __init__(self, config: FlareConfig) -> None:
        super().__init__()
        width, n_heads = config.width, config.n_heads
        self.n_heads = n_heads
        latents = torch.empty(n_heads, config.n_latents, width // n_heads)
        self.latents = nn.Parameter(nn.init.normal_(latents, std=0.1))
        sizes = (width, width, width)
        self.key = ResidualPerceptron(sizes, config.n_hidden_layers)
        self.value = ResidualPerceptron(sizes, config.n_hidden_layers)
        self.output = _linear(width, width)

    def forward(self, points: Points, is_there: Tensor | None = None) -> Points:
        """Return the attended values of every point; nothing is gathered where there is none."""
        key, value = self._by_head(self.key(points)), self._by_head(self.value(points))
        queries = self.latents.expand(len(points), *self.latents.shape)
        gathered = functional.scaled_dot_product_attention(
            queries,
            key,
            value,
            attn_mask=None if is_there is None else is_there.flatten(1)[:, None, None, :],
            scale=1.0,
        )
        spread = functional.scaled_dot_product_attention(key, queries, gathered, scale=1.0)
        return self.output(spread.transpose(1, 2).flatten(2))

    def _by_head(self, points: Points) -> Float[Tensor, "batch head point head_width"]:
        return points.unflatten(2, (self.n_heads, -1)).transpose(1, 2)


class FlareLayer(nn.Module):
    """Attention through latents and a perceptron, each after a norm and beside a skip."""

    def __init__(self, config: FlareConfig) -> None:
        super().__init__()
        width = config.width
        self.attention_norm = nn.LayerNorm(width)
        self.attention = LatentAttention(config)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = ResidualPerceptron((width, width, width), config.n_hidden_layers)

    def forward(self, points: Points, is_there: Tensor | None = None) -> Points:
        """Return the features after the layer."""
        points = points + self.attention(self.attention_norm(points), is_there)
        return points + self.feed_forward(self.feed_forward_norm(points))


class Flare(nn.Module):
    """FLARE on grids, on meshes and on scattered points; the weights serve every number."""

    def __init__(self, config: FlareConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.positions = Positions(config.positions, shape)
        n_inputs, width = self.positions.n_channels + self.positions.n_values, config.width
        n_hidden = config.n_outer_layers
        self.lift = ResidualPerceptron((n_inputs, width, width), n_hidden, skips_first=False)
        self.layers = nn.Sequential(*(FlareLayer(config) for _ in range(config.n_layers)))
        self.head_norm = nn.LayerNorm(width)
        self.head = ResidualPerceptron((width, width, shape.n_outputs), n_hidden, skips_last=False)

    def forward(self, field: Inputs, is_there: Tensor | None = None) -> Outputs:
        """Return the predicted fields; points that are not there change no other."""
        field = at_real_points(field, is_there)
        points = torch.cat(self.positions(field), dim=-1).flatten(1, -2)
        features = self.lift(points)
        for layer in self.layers:
            features = layer(features, is_there)
        return self.head(self.head_norm(features)).view(*field.shape[:-1], -1)


def _linear(n_inputs: int, n_outputs: int) -> nn.Linear:
    """Return a linear map that begins small and without a shift."""
    layer = nn.Linear(n_inputs, n_outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


def preset(task: Task) -> FlareConfig:
    """Return the FLARE of a preset.

    The authors published settings for elasticity, pipe and airfoil, and Darcy: points, meshes and
    grids here. The pipe has 128 latents there, the airfoil 256.
    """
    n_latents, n_heads = (64, 8) if task.is_scattered else (256, 8 if task.has_mesh else 16)
    published = FlareConfig(n_heads=n_heads, n_latents=n_latents, positions=task.positions("index"))
    return task.choose(
        smoke=replace(published, width=16, n_layers=2, n_heads=2, n_latents=16),
        quick=replace(published, width=32, n_layers=4, n_heads=4, n_latents=32),
        published=published,
    )


_RECIPE = {
    "epochs": 500,
    "batch_size": 2,
    "learning_rate": 1e-3,
    "optimizer": "adamw",
    "weight_decay": 1e-5,
    "decayed": "matrices",
    "schedule": "one_cycle",
    "gradient_clip": 1.0,
}
RECIPES = dict.fromkeys(("elasticity_p", "airfoil", "pipe"), _RECIPE) | {
    "darcy": {**_RECIPE, "derivative_weight": 0.1}
}

MODEL = ModelEntry(
    config=FlareConfig,
    network=Flare,
    preset=preset,
    takes_points=True,
    decays=False,
    recipes=RECIPES,
)
