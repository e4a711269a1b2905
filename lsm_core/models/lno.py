"""Latent Neural Operator (Wang and Wang, NeurIPS 2024), in any dimension.

Positions x and values y at n points are told to m latent vectors, which a transformer works on, and
the answer is read from these. With r, b and s perceptrons,

    S = s(r(x))                                 scores (point, latent)
    Z = (softmax of S over points)^T b(x, y)
    Z <- transformer(Z)
    answer = h((softmax of S over latents) Z)

One matrix of scores leads there and back, so that the answer is at the points that were told.
With `separate_scores` there is one a way, and the model is asked at any other points.

What the released code does and is not repeated here: it scales the test samples by their own mean
and deviation and the predictions back by those of the training samples, so that the target itself
is another; and it tests Darcy, elasticity, airfoil and pipe on other samples than everybody else.
"""

from collections.abc import Sequence
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

Latents = Float[Tensor, "batch latent channel"]


@dataclass(frozen=True, kw_only=True)
class LnoConfig:
    """Everything that can be chosen about an LNO.

    `n_hidden_layers` are those of each perceptron, beside its first and last. `separate_scores`
    is the variant that can be asked at other points than it is told of.
    """

    width: int = 128
    n_layers: int = 4
    n_heads: int = 8
    n_latents: int = 256
    n_hidden_layers: int = 2
    separate_scores: bool = False
    positions: PositionConfig = field(default_factory=PositionConfig)

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_layers", "n_heads", "n_latents")
        check_at_least(0, self, "n_hidden_layers")
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} must be a multiple of n_heads {self.n_heads}")
        if self.positions.kind == "distances":
            raise ValueError("an LNO reads positions, not distances; take `index` or `inputs`")


class ResidualPerceptron(nn.Module):
    """A pointwise perceptron whose hidden layers add to what they read."""

    def __init__(self, n_inputs: int, width: int, n_outputs: int, n_hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_inputs, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(n_hidden))
        self.last = nn.Linear(width, n_outputs)

    def forward(
        self, points: Float[Tensor, "batch point input"]
    ) -> Float[Tensor, "batch point output"]:
        """Return the outputs of every point."""
        features = functional.gelu(self.first(points))
        for layer in self.hidden:
            features = features + functional.gelu(layer(features))
        return self.last(features)


class LatentLayer(nn.Module):
    """A transformer layer between latent vectors: attention and a feed-forward network."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, latents: Latents) -> Latents:
        """Return the latent vectors after the layer."""
        latents = latents + self.attended(self.attention_norm(latents))
        return latents + self.feed_forward(self.feed_forward_norm(latents))

    def attended(self, latents: Latents) -> Latents:
        """Return what every latent vector takes from all."""
        query, key, value = (
            part(latents).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        heads = functional.scaled_dot_product_attention(query, key, value)
        return self.output(heads.transpose(1, 2).flatten(2))


class Lno(nn.Module):
    """LNO on grids, on meshes and on scattered points; the weights serve every number."""

    def __init__(self, config: LnoConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.positions = Positions(config.positions, shape)
        n_positions, width = self.positions.n_channels, config.width
        n_hidden = config.n_hidden_layers
        self.trunk = ResidualPerceptron(n_positions, width, width, n_hidden)
        self.lift = ResidualPerceptron(
            n_positions + self.positions.n_values, width, width, n_hidden
        )
        self.scores = ResidualPerceptron(width, width, config.n_latents, n_hidden)
        self.asking_scores = (
            ResidualPerceptron(width, width, config.n_latents, n_hidden)
            if config.separate_scores
            else None
        )
        self.layers = nn.Sequential(
            *(LatentLayer(width, config.n_heads) for _ in range(config.n_layers))
        )
        self.head = ResidualPerceptron(width, width, shape.n_outputs, n_hidden)

    def forward(self, field: Inputs, is_there: Tensor | None = None) -> Outputs:
        """Return the predicted fields at the points of the input; those not there tell nothing."""
        field = at_real_points(field, is_there)
        positions, values = (part.flatten(1, -2) for part in self.positions(field))
        features = self.trunk(positions)
        scores = telling = self.scores(features)
        if is_there is not None:
            telling = scores.masked_fill(~is_there.flatten(1).unsqueeze(-1), -torch.inf)
        latents = self.told(telling, torch.cat([positions, values], dim=-1))
        if self.asking_scores is not None:
            scores = self.asking_scores(features)
        return self.read(scores, latents).view(*field.shape[:-1], -1)

    def at(
        self, field: Inputs, asked: Float[Tensor, "batch query coordinate"]
    ) -> Float[Tensor, "batch query output"]:
        """Return the predicted values at other positions than those of the input."""
        if self.asking_scores is None:
            raise ValueError(
                "this LNO answers at the points it is told of; build it with separate_scores=True"
            )
        positions, values = (part.flatten(1, -2) for part in self.positions(field))
        scores = self.scores(self.trunk(positions))
        latents = self.told(scores, torch.cat([positions, values], dim=-1))
        return self.read(self.asking_scores(self.trunk(asked)), latents)

    def told(
        self,
        scores: Float[Tensor, "batch point latent"],
        points: Float[Tensor, "batch point known"],
    ) -> Latents:
        """Return the latent vectors after the transformer, given what is known at the points."""
        return self.layers(scores.softmax(1).mT @ self.lift(points))

    def read(
        self, scores: Float[Tensor, "batch query latent"], latents: Latents
    ) -> Float[Tensor, "batch query output"]:
        """Return the answers at points with these scores."""
        return self.head(scores.softmax(2) @ latents)


def preset(task: Task) -> LnoConfig:
    """Return the LNO of a preset; the published settings are those of the PyTorch scripts."""
    positions = task.positions("index")
    sizes: Sequence[int] = (128, 4, 2)
    if task.steps_through_time:
        sizes = (256, 8, 2)
    elif task.is_scattered:
        sizes = (192, 4, 3)
    elif task.has_mesh:
        sizes = (128, 8, 2)
    width, n_layers, n_hidden = sizes
    published = LnoConfig(
        width=width, n_layers=n_layers, n_hidden_layers=n_hidden, positions=positions
    )
    return task.choose(
        smoke=replace(published, width=16, n_layers=2, n_heads=2, n_latents=16),
        quick=replace(published, width=48, n_layers=4, n_heads=4, n_latents=64),
        published=published,
    )


_RECIPE = {
    "epochs": 500,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "optimizer": "adamw",
    "weight_decay": 5e-5,
    "schedule": "one_cycle",
}
RECIPES = dict.fromkeys(("elasticity_p", "plasticity", "darcy", "airfoil", "pipe"), _RECIPE) | {
    "navier_stokes": {**_RECIPE, "teacher_forcing": True}
}

MODEL = ModelEntry(
    config=LnoConfig, network=Lno, preset=preset, takes_points=True, decays=False, recipes=RECIPES
)
