"""Fourier Neural Operator (Li et al., ICLR 2021), in any dimension."""

from dataclasses import dataclass

from torch import nn

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.fourier import SpectralConvolution
from lsm_core.layers.fourier_modes import FourierLayers, modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to
from lsm_core.layers.shapes import Field
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.grid_model import GridModel
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


class FourierNetwork(FourierLayers):
    """Fourier layers on a padded grid: from features to features of the same width."""

    def __init__(self, config: FnoConfig, space: tuple[int, ...]) -> None:
        modes, width = modes_of_axes(config.n_modes, space), config.width
        super().__init__(
            spectral=(SpectralConvolution(width, width, modes) for _ in range(config.n_layers)),
            local=(nn.Linear(width, width) for _ in range(config.n_layers)),
        )
        self.space = space
        self.padded = tuple(size + config.padding for size in space)

    def forward(self, features: Field) -> Field:
        """Return the features after all Fourier layers."""
        return crop_to(super().forward(pad_to(features, self.padded, "zero")), self.space)


class Fno(GridModel):
    """Fourier Neural Operator on a regular grid."""

    def __init__(self, config: FnoConfig, shape: ProblemShape) -> None:
        super().__init__(shape, config.width)
        self.network = FourierNetwork(config, shape.space)
        self.head = Head(config.width, config.head_width, shape.n_outputs)

    def mapped(self, features: Field) -> Field:
        """Return the features after all Fourier layers."""
        return self.network(features)


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
