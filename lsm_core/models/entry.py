"""What a model's file says of its model: an entry, from which the catalogue is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import nn

from lsm_core.layers.positions import PositionConfig, PositionKind
from lsm_core.names import PresetName

Config = TypeVar("Config")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model is set up for: a preset, and what its settings may depend on of a problem."""

    preset: PresetName
    n_dims: int
    """Axes of the grid that the model works on; for scattered points those of the latent grid."""
    is_periodic: bool
    steps_through_time: bool
    quick_modes: int | tuple[int, ...] | None
    """Fourier modes along the axes at preset quick, where they are not those of the paper."""
    released_width: int
    """First width of LSM in the released script."""
    is_scattered: bool = False
    """Whether points are in no order; their positions are the first channels of the input."""
    has_mesh: bool = False
    """Whether the input is the positions of the nodes of a mesh."""

    reads_others: bool = False
    """Whether on scattered points the channels after the positions are read, too."""

    def positions(self, on_grids: PositionKind) -> PositionConfig:
        """Return where a model that takes points as they are finds their positions.

        On scattered points it reads those alone, without the code of the shape, as the authors of
        such models do. Small presets scale the nodes of meshes point by point, which leaves no
        position of them.
        """
        if self.is_scattered:
            return PositionConfig(
                kind="inputs", n_coordinates=self.n_dims, reads_others=self.reads_others
            )
        if self.has_mesh and self.preset in ("paper", "release"):
            return PositionConfig(kind="inputs", n_coordinates=self.n_dims)
        return PositionConfig(kind=on_grids)

    def choose(self, *, smoke: Config, quick: Config, published: Config) -> Config:
        """Return the settings of the preset; `paper` and `release` have the published ones."""
        return {"smoke": smoke, "quick": quick}.get(self.preset, published)

    @property
    def n_modes(self) -> int | tuple[int, ...]:
        """Return how many Fourier modes a model keeps: more where there is a single axis."""
        if self.preset == "quick" and self.quick_modes:
            return self.quick_modes
        smoke, others = {1: (8, 16)}.get(self.n_dims, (4, 12))
        return smoke if self.preset == "smoke" else others

    @property
    def padding(self) -> int:
        """Return the zeros after each axis of a problem that is not periodic, in small presets."""
        if self.is_periodic:
            return 0
        return 4 if self.preset == "smoke" or self.n_dims == 3 else 8


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One model: its settings, its network, and which settings it has in which preset.

    In `paper` and `release` a model is as large as the paper's table of efficiency has it. The
    authors released scripts of LSM, whose FNO has the widths of LSM; the other baselines are the
    same in both. In `smoke` and `quick` it is small: a cell takes seconds, and half a minute.
    """

    config: type[Any]
    """A frozen dataclass with a field `width`, which preset `matched` changes, unless it is LSM's:
    the size of that is what the others are brought to."""
    network: type[nn.Module]
    preset: Callable[[Task], Any]
    takes_points: bool = False
    """Whether it takes scattered points as they are; others go through a latent grid."""
    decays: bool = True
    """Whether preset smoke lets its weights decay. Adam adds the decay to the gradient: in a
    model that starts with the same answer everywhere, whose gradient is small, it keeps it there.
    """
    is_fitted: bool = False
    """Whether its weights are computed from the samples (`FittedModel`), outside of the recipe."""
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How its authors train it, by benchmark: what differs from the LSM paper's training, for the
    presets `paper` and `release`. Scales of fields are those of the benchmark."""
    needs_history: bool = False
    """Whether it reads past frames and predicts the next: for problems that step through time."""
    latent: Callable[[Any, tuple[int, ...]], nn.Module] | None = None
    """The network between two Fourier layers on scattered points, from as many features as the
    model is wide to as many, if it goes there without the lift and the head that it has on a
    grid."""
