"""Fourier Neural Operator (Li et al., ICLR 2021), in any dimension."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.fourier import SpectralConvolution
from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class FnoConfig:
    """Everything that can be chosen about an FNO.

    `n_modes` is one number for all axes or one for each. `padding` points of zeros follow each
    axis, for problems that are not periodic.
    """

    width: int = 32
    n_modes: int | tuple[int, ...] = 12
    n_layers: int = 4
    head_width: int = 128
    padding: int = 0

    def __post_init__(self) -> None:
        modes = self.n_modes if isinstance(self.n_modes, tuple) else (self.n_modes,)
        for name, value in (
            ("width", self.width),
            ("n_modes", min(modes)),
            ("n_layers", self.n_layers),
            ("head_width", self.head_width),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.padding < 0:
            raise ValueError(f"padding must not be negative, got {self.padding}")


class FourierNetwork(nn.Module):
    """Fourier layers: from features to features of the same width."""

    def __init__(self, config: FnoConfig, space: tuple[int, ...]) -> None:
        super().__init__()
        modes = config.n_modes
        if isinstance(modes, int):
            modes = (modes,) * len(space)
        if len(modes) != len(space):
            raise ValueError(f"n_modes {modes} has not one number for each axis of {space}")
        self.space = space
        self.padded = tuple(size + config.padding for size in space)
        width = config.width
        self.spectral = nn.ModuleList(
            SpectralConvolution(width, width, modes) for _ in range(config.n_layers)
        )
        self.local = nn.ModuleList(nn.Linear(width, width) for _ in range(config.n_layers))

    def forward(
        self, features: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the features after all Fourier layers."""
        features = pad_to(features, self.padded, "zero")
        for i, (spectral, local) in enumerate(zip(self.spectral, self.local, strict=True)):
            if i > 0:
                features = functional.gelu(features)
            features = spectral(features) + local(features)
        return crop_to(features, self.space)


class Fno(nn.Module):
    """Fourier Neural Operator on a regular grid."""

    coordinates: Tensor

    def __init__(self, config: FnoConfig, shape: ProblemShape) -> None:
        super().__init__()
        self.lift = nn.Linear(shape.n_inputs + shape.n_dims, config.width)
        self.network = FourierNetwork(config, shape.space)
        self.head = Head(config.width, config.head_width, shape.n_outputs)
        self.register_buffer("coordinates", unit_coordinates(shape.space), persistent=False)

    def forward(
        self, field: Float[Tensor, "batch *space input"]
    ) -> Float[Tensor, "batch *space output"]:
        """Return the predicted fields."""
        coordinates = self.coordinates.expand(len(field), *self.coordinates.shape)
        features = self.lift(torch.cat([field, coordinates], dim=-1))
        return self.head(self.network(features))
