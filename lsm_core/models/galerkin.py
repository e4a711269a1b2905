"""Galerkin Transformer (Cao, NeurIPS 2021), in any dimension."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.coordinates import AppendCoordinates, unit_coordinates
from lsm_core.layers.fourier_modes import SpectralResampling, modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.resampling import resample
from lsm_core.layers.shapes import Features, Field, Inputs, Outputs
from lsm_core.layers.strided_convolution import Convolution
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class GalerkinConfig:
    """Everything that can be chosen about a Galerkin Transformer.

    Attention is between the points of a grid that is coarser than that of the data by the factor
    `coarsening`. The hidden layer of the feed-forward network is `expansion` times as wide as the
    features. `n_modes`, one number for all axes or one for each, and `decoder_width` belong to
    the Fourier layers after it.
    """

    width: int = 128
    n_layers: int = 6
    n_heads: int = 4
    expansion: int = 2
    coarsening: int = 2
    decoder_width: int = 48
    n_decoder_layers: int = 2
    n_modes: int | tuple[int, ...] = 12
    head_width: int = 128

    def __post_init__(self) -> None:
        check_at_least(1, self, *vars(self))
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} must be a multiple of n_heads {self.n_heads}")


Points = Float[Tensor, "batch point channel"]

# Size of the random part and of the diagonal of the first query, key and value matrices.
_GAIN = 1e-2


class GalerkinAttention(nn.Module):
    """Galerkin-type attention of several heads (Cao, NeurIPS 2021).

    With n points, and the position of each in front of its query, key and value in every head,

        z = Q (K^T V) / n,    K and V normalised over the channels of a head.

    K^T V / n holds the integrals over the domain of the products of two functions each, and the
    rows of z are combinations of the queries with these as coefficients: a Petrov-Galerkin
    projection. Nothing is of the size n x n.
    """

    def __init__(self, width: int, n_heads: int, n_dims: int) -> None:
        super().__init__()
        if n_heads < 1 or width % n_heads:
            raise ValueError(f"{width} channels cannot be shared out between {n_heads} heads")
        self.n_heads = n_heads
        self.query = _nearly_diagonal(width)
        self.key = _nearly_diagonal(width)
        self.value = _nearly_diagonal(width)
        self.key_norm = HeadNorm(n_heads, width // n_heads)
        self.value_norm = HeadNorm(n_heads, width // n_heads)
        self.output = nn.Linear(width + n_heads * n_dims, width)

    def forward(self, points: Points, positions: Float[Tensor, "point axis"]) -> Points:
        """Return the attended values of every point."""
        query = self.query(points).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
        key = self.key_norm(self.key(points).unflatten(2, (self.n_heads, -1)))
        value = self.value_norm(self.value(points).unflatten(2, (self.n_heads, -1)))
        positions = positions.expand(*query.shape[:2], *positions.shape)
        query, key, value = (torch.cat([positions, part], dim=-1) for part in (query, key, value))
        attended = query @ (key.mT @ value / points.shape[1])  # (batch, head, point, axis channel)
        return self.output(attended.transpose(1, 2).flatten(2))


class HeadNorm(nn.Module):
    """Normalisation over the channels of a head, with scales and shifts of each head."""

    def __init__(self, n_heads: int, head_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_heads, 1, head_width))
        self.bias = nn.Parameter(torch.zeros(n_heads, 1, head_width))

    def forward(
        self, values: Float[Tensor, "batch point head channel"]
    ) -> Float[Tensor, "batch head point channel"]:
        """Return the normalised values, head by head.

        They are transposed after the normalisation, whose gradient is contiguous, which torch's
        compiler does not know: before a transposition it would take the wrong layout for it.
        """
        normalized = functional.layer_norm(values, values.shape[-1:]).transpose(1, 2)
        return torch.addcmul(self.bias, normalized, self.weight)


def _nearly_diagonal(width: int) -> nn.Linear:
    """Return a projection that begins as a small multiple of the identity, with small noise."""
    projection = nn.Linear(width, width)
    with torch.no_grad():
        nn.init.xavier_uniform_(projection.weight, gain=_GAIN)
        projection.weight.diagonal().add_(_GAIN)
        projection.bias.zero_()
    return projection


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each added to what came in."""

    def __init__(self, config: GalerkinConfig, n_dims: int) -> None:
        super().__init__()
        width, n_hidden = config.width, config.expansion * config.width
        self.attention = GalerkinAttention(width, config.n_heads, n_dims)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, n_hidden), nn.ReLU(), nn.Linear(n_hidden, width)
        )

    def forward(self, points: Points, positions: Float[Tensor, "point axis"]) -> Points:
        """Return the features of every point after the layer."""
        points = points + self.attention(points, positions)
        return points + self.feed_forward(points)


class SpectralDecoder(nn.Module):
    """Fourier layers from features with coordinates to features of the decoder's width."""

    def __init__(self, config: GalerkinConfig, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        width = config.decoder_width
        inputs = [config.width] + [width] * (config.n_decoder_layers - 1)
        self.lift = nn.Linear(config.width + len(n_modes), config.width)
        self.spectral = nn.ModuleList(SpectralResampling(n, width, n_modes) for n in inputs)
        self.local = nn.ModuleList(nn.Linear(n, width) for n in inputs)

    def forward(self, features: Field) -> Features:
        """Return the features after all layers."""
        features = self.lift(features)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            features = functional.silu(spectral(features) + local(features))
        return features


class Galerkin(nn.Module):
    """Galerkin Transformer on a regular grid; the weights serve every grid.

    The defaults are the authors' for Darcy flow, with convolutions on both sides of the coarser
    grid; their number of parameters is 3 % below that of the LSM paper, which does not say how
    wide its decoder is. The authors also set the values at the edges for Darcy flow: that is
    knowledge about one problem, and none of the models here has it.
    """

    positions: Tensor

    def __init__(self, config: GalerkinConfig, shape: ProblemShape) -> None:
        super().__init__()
        n_dims = shape.n_dims
        modes = modes_of_axes(config.n_modes, shape.space)
        self.space = shape.space
        self.coarse = tuple(-(-size // config.coarsening) for size in shape.space)
        width = config.width
        self.before_coarsening = Convolution(n_dims, shape.n_inputs + n_dims, width)
        self.after_coarsening = Convolution(n_dims, width, width)
        self.encoder = nn.ModuleList(EncoderLayer(config, n_dims) for _ in range(config.n_layers))
        self.before_refining = Convolution(n_dims, width, width)
        self.after_refining = Convolution(n_dims, width, width)
        self.decoder = SpectralDecoder(config, modes)
        self.head = Head(config.decoder_width, config.head_width, shape.n_outputs)
        self.with_coordinates = AppendCoordinates(shape.space)
        positions = unit_coordinates(self.coarse).flatten(0, -2)
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        features = functional.silu(self.before_coarsening(self.with_coordinates(field)))
        features = functional.silu(self.after_coarsening(resample(features, self.coarse)))
        points = features.flatten(1, -2)
        for layer in self.encoder:
            points = layer(points, self.positions)
        features = functional.silu(self.before_refining(points.reshape(features.shape)))
        features = functional.silu(self.after_refining(resample(features, self.space)))
        return self.head(self.decoder(self.with_coordinates(features)))


def preset(task: Task) -> GalerkinConfig:
    """Return the Galerkin Transformer of a preset."""
    small = GalerkinConfig(n_heads=2, n_modes=task.n_modes)
    return task.choose(
        smoke=replace(small, width=16, n_layers=2, decoder_width=8),
        quick=replace(small, width=32, n_layers=3, decoder_width=12),
        published=GalerkinConfig(n_modes=task.n_modes),
    )


MODEL = ModelEntry(config=GalerkinConfig, network=Galerkin, preset=preset)
