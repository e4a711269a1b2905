"""Factorized Fourier Neural Operator (Tran et al., ICLR 2023), in any dimension."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.coordinates import append_coordinates, unit_coordinates
from lsm_core.layers.factorized_fourier import FactorizedSpectralConvolution
from lsm_core.layers.fourier_modes import modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.padding import crop_to, pad_to
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class FfnoConfig:
    """Everything that can be chosen about an F-FNO.

    `n_modes` is one number for all axes or one for each. The hidden layer of the feed-forward
    network is `expansion` times as wide as the features. `padding` points of zeros follow each
    axis, for problems that are not periodic.
    """

    width: int = 32
    n_modes: int | tuple[int, ...] = 12
    n_layers: int = 4
    expansion: int = 2
    head_width: int = 128
    padding: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_modes", "n_layers", "expansion", "head_width")
        check_at_least(0, self, "padding")


class FactorizedLayer(nn.Module):
    """A factorised convolution and a feed-forward network, added to what came in.

        z + W_2 relu(W_1 K(z) + b_1) + b_2

    The residual stands after the feed-forward network, which is what makes the layer nonlinear.
    """

    def __init__(self, config: FfnoConfig, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        width, n_hidden = config.width, config.expansion * config.width
        self.convolution = FactorizedSpectralConvolution(width, width, n_modes)
        self.feed_forward = nn.Sequential(
            weight_norm(nn.Linear(width, n_hidden)),
            nn.ReLU(),
            weight_norm(nn.Linear(n_hidden, width)),
        )

    def forward(
        self, features: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the features after the layer."""
        return features + self.feed_forward(self.convolution(features))


class Ffno(nn.Module):
    """Factorized Fourier Neural Operator on a regular grid.

    The defaults have the size that the LSM paper compares with. The weights serve every grid.
    The output network has an activation, as those of the other models here.
    """

    coordinates: Tensor

    def __init__(self, config: FfnoConfig, shape: ProblemShape) -> None:
        super().__init__()
        modes = modes_of_axes(config.n_modes, shape.space)
        self.space = shape.space
        self.padded = tuple(size + config.padding for size in shape.space)
        self.lift = nn.Linear(shape.n_inputs + shape.n_dims, config.width)
        self.layers = nn.Sequential(
            *(FactorizedLayer(config, modes) for _ in range(config.n_layers))
        )
        self.head = Head(config.width, config.head_width, shape.n_outputs)
        self.register_buffer("coordinates", unit_coordinates(shape.space), persistent=False)

    def forward(
        self, field: Float[Tensor, "batch *space input"]
    ) -> Float[Tensor, "batch *space output"]:
        """Return the predicted fields."""
        features = self.lift(append_coordinates(field, self.coordinates))
        features = self.layers(pad_to(features, self.padded, "zero"))
        return self.head(crop_to(features, self.space))
