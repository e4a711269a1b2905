"""Fourier Neural Operator (Li et al., ICLR 2021), in any dimension."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.coordinates import append_coordinates, unit_coordinates
from lsm_core.layers.fourier import SpectralConvolution
from lsm_core.layers.fourier_modes import modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to
from lsm_core.models.entry import ModelEntry, Task
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
        check_at_least(1, self, "width", "n_modes", "n_layers", "head_width")
        check_at_least(0, self, "padding")


class FourierNetwork(nn.Module):
    """Fourier layers: from features to features of the same width."""

    def __init__(self, config: FnoConfig, space: tuple[int, ...]) -> None:
        super().__init__()
        modes = modes_of_axes(config.n_modes, space)
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
        features = self.lift(append_coordinates(field, self.coordinates))
        return self.head(self.network(features))


def preset(task: Task) -> FnoConfig:
    """Return the FNO of a preset: in one dimension as its paper has it for Burgers."""
    modes, padding = task.n_modes, task.padding
    quick, published = {1: (32, 64), 3: (12, task.released_width)}.get(
        task.n_dims, (20, task.released_width)
    )
    return task.choose(
        smoke=FnoConfig(width=16, n_modes=modes, padding=padding),
        quick=FnoConfig(width=quick, n_modes=modes, padding=padding),
        published=FnoConfig(width=published, n_modes=modes),
    )


def latent_network(config: FnoConfig, space: tuple[int, ...]) -> nn.Module:
    """Return the Fourier layers between scattered points, with an activation as in geo-FNO."""
    return nn.Sequential(FourierNetwork(config, space), nn.GELU())


MODEL = ModelEntry(config=FnoConfig, network=Fno, preset=preset, latent=latent_network)
