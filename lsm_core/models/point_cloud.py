"""Grid models on scattered points, through a latent regular grid (geo-FNO, Li et al., 2023)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.deformation import Deformation
from lsm_core.layers.head import Head
from lsm_core.layers.nonuniform_fourier import GridToPoints, PointsToGrid, mode_phases
from lsm_core.layers.positions import at_real_points
from lsm_core.models.lsm import LsmConfig
from lsm_core.problems.shape import ProblemShape

HEAD_WIDTH = 128
USUAL_POINTS = 1000
"""What means over points are brought to: about as many as the sums have for which the layers'
first weights are chosen."""


@runtime_checkable
class BodyConfig(Protocol):
    """Settings of a grid model with a main width: of any model of the catalogue but an LSM."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def width(self) -> int:
        """Return the number of channels that the model works with."""


@dataclass(frozen=True, kw_only=True)
class PointCloudConfig:
    """Everything that can be chosen about a grid model on scattered points.

    `body` is the model on the latent grid, `n_features` the number of channels that it reads and
    writes there: its width by default, which it has to be for LSM and FNO. `center` is where the
    deformation measures angles and distances from, along every axis: the released value is next
    to a corner of the unit square. `released_inverse` reproduces an error of the released code,
    for weights trained with it.
    """

    body: LsmConfig | BodyConfig
    n_features: int | None = None
    latent_shape: tuple[int, ...] = (96, 96)
    n_modes: int = 12
    deformation_width: int = 32
    center: float = 1e-4
    released_inverse: bool = False
    n_fields: int = 0
    """Channels after the positions that differ from point to point."""
    averaged: bool = False
    """Whether sums over points become means, for samples whose numbers of points differ."""

    def __post_init__(self) -> None:
        if not 1 <= 2 * self.n_modes <= min(self.latent_shape):
            raise ValueError(
                f"a latent grid of {self.latent_shape} has not {self.n_modes} modes of both signs"
            )
        if self.deformation_width < 2 * self.n_dims:
            raise ValueError(
                f"deformation_width must be at least {2 * self.n_dims}, "
                f"got {self.deformation_width}"
            )

    @property
    def n_dims(self) -> int:
        """Return the number of coordinates of a point."""
        return len(self.latent_shape)

    @property
    def width(self) -> int:
        """Return the number of channels on the latent grid."""
        if self.n_features is not None:
            return self.n_features
        return self.body.width if isinstance(self.body, BodyConfig) else self.body.widths[0]

    @property
    def latent_problem(self) -> ProblemShape:
        """Return what the body has to map: features on the latent grid to as many others."""
        return ProblemShape(space=self.latent_shape, n_inputs=self.width, n_outputs=self.width)


class PointCloudModel(nn.Module):
    """A grid model between two Fourier layers that lead from scattered points and back to them.

    The first channels of the input are the positions of the points, in the unit cube, then come
    fields at the points if there are any. All others are the code of the shape, the same at every
    point of a sample. The number of points is free.
    The network between the layers is given: it maps what `config.latent_problem` says.
    """

    coordinates: Tensor

    def __init__(self, config: PointCloudConfig, shape: ProblemShape, network: nn.Module) -> None:
        super().__init__()
        self.n_dims, self.n_modes = config.n_dims, config.n_modes
        self.averaged, self.n_known = config.averaged, self.n_dims + config.n_fields
        n_code = shape.n_inputs - self.n_known
        if n_code < 0:
            raise ValueError(
                f"{shape.n_inputs} inputs cannot hold points with {self.n_dims} coordinates and "
                f"{config.n_fields} fields"
            )
        width = config.width
        self.deformation = Deformation(self.n_dims, n_code, config.deformation_width, config.center)
        self.lift = nn.Linear(self.n_known, width)
        self.to_grid = PointsToGrid(width, width, self.n_modes, config.latent_shape)
        self.grid_lift = nn.Linear(self.n_dims, width)
        self.network = network
        self.to_points = GridToPoints(
            width, width, self.n_modes, self.n_dims, released_inverse=config.released_inverse
        )
        self.point_lift = nn.Linear(self.n_known, width)
        self.head = Head(width, HEAD_WIDTH, shape.n_outputs)
        self.register_buffer("coordinates", unit_coordinates(config.latent_shape), persistent=False)

    def forward(
        self,
        inputs: Float[Tensor, "batch point input"],
        is_there: Bool[Tensor, "batch point"] | None = None,
    ) -> Float[Tensor, "batch point output"]:
        """Return the predicted values at the points; those that are not there change no other.

        The first point of a sample has to be there.
        """
        inputs = at_real_points(inputs, is_there)
        known, code = inputs[..., : self.n_known], inputs[:, 0, self.n_known :]
        positions = known[..., : self.n_dims]
        deformed = self.deformation(positions, code)
        phases = mode_phases(deformed, self.n_modes)
        lifted = self._counted(self.lift(known), is_there)
        on_grid = self.to_grid(lifted, phases) + self.grid_lift(self.coordinates)
        solved = self.network(functional.gelu(on_grid))
        at_points = self.to_points(solved, phases, deformed) + self.point_lift(known)
        return self.head(at_points)

    def _counted(
        self, values: Float[Tensor, "batch point feature"], is_there: Tensor | None
    ) -> Float[Tensor, "batch point feature"]:
        """Return values whose sum over points is the one that is wanted."""
        if is_there is not None:
            values = values * is_there.unsqueeze(-1)
        if not self.averaged:
            return values
        n_points = values.shape[1] if is_there is None else is_there.sum(1).view(-1, 1, 1)
        return values * (USUAL_POINTS / n_points)
