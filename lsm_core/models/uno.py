"""U-shaped Neural Operator (Rahman et al., TMLR 2023), in any dimension."""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least
from lsm_core.layers.fourier_modes import SpectralResampling, modes_of_axes
from lsm_core.layers.head import Head
from lsm_core.layers.resampling import resample
from lsm_core.layers.shapes import Features, Field
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.models.grid_model import GridModel
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class UnoConfig:
    """Everything that can be chosen about a U-NO.

    The grid is halved and the width doubled `n_levels` times. `n_modes` is one number for all
    axes or one for each; it belongs to the step from the finest grid to the next, and is halved
    from step to step. `padding` points of zeros follow each axis, for problems that are not
    periodic.
    """

    width: int = 16
    n_modes: int | tuple[int, ...] = 9
    n_levels: int = 2
    head_width: int = 128
    padding: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, self, "width", "n_modes", "n_levels", "head_width")
        check_at_least(0, self, "padding")


class OperatorBlock(nn.Module):
    """A spectral and a pointwise map from a function on one grid to a function on another."""

    def __init__(self, n_inputs: int, n_outputs: int, n_modes: tuple[int, ...]) -> None:
        super().__init__()
        self.spectral = SpectralResampling(n_inputs, n_outputs, n_modes)
        self.local = nn.Linear(n_inputs, n_outputs)

    def forward(
        self, features: Field, space: tuple[int, ...]
    ) -> Float[Tensor, "batch *new_space feature"]:
        """Return the features on a grid of the shape given."""
        if prod(space) < prod(features.shape[1:-1]):
            local = self.local(resample(features, space))
        else:
            # The two commute, and this way round the matrix product is on the smaller grid.
            local = resample(self.local(features), space)
        return functional.gelu(self.spectral(features, space) + local)


class Uno(GridModel):
    """U-shaped Neural Operator on a regular grid.

    Functions are contracted to ever coarser grids with ever more channels, and expanded again;
    each expansion also sees the function that was contracted from its grid. The authors' blocks
    for Darcy flow have width 32 and 18, 8 modes. The defaults have half of these, which is within
    2 % of the size that the LSM paper compares with. The weights serve every grid.
    """

    def __init__(self, config: UnoConfig, shape: ProblemShape) -> None:
        padded = tuple(size + config.padding for size in shape.space)
        super().__init__(shape, config.width, padded)
        self.grids = [_halved(padded, level) for level in range(config.n_levels + 1)]
        widths = [config.width * 2**level for level in range(config.n_levels + 1)]
        levels = range(config.n_levels)
        finest_modes = modes_of_axes(config.n_modes, shape.space)
        modes = [_halved(finest_modes, level) for level in levels]
        self.contract = nn.ModuleList(
            OperatorBlock(widths[level], widths[level + 1], modes[level]) for level in levels
        )
        self.bottom = OperatorBlock(widths[-1], widths[-1], modes[-1])
        # Coarsest first. Below the first expansion there is nothing to see besides.
        self.expand = nn.ModuleList(
            OperatorBlock(
                widths[level + 1] * (1 if level == levels[-1] else 2), widths[level], modes[level]
            )
            for level in reversed(levels)
        )
        self.head = Head(2 * widths[0], config.head_width, shape.n_outputs)

    def mapped(self, features: Field) -> Features:
        """Return the features after all contractions and expansions."""
        contracted = []
        for contract, grid in zip(self.contract, self.grids[1:], strict=True):
            contracted.append(features)
            features = contract(features, grid)
        features = self.bottom(features, self.grids[-1])
        for expand, grid, skip in zip(
            self.expand, self.grids[-2::-1], reversed(contracted), strict=True
        ):
            features = torch.cat([expand(features, grid), skip], dim=-1)
        return features


def _halved(counts: tuple[int, ...], times: int) -> tuple[int, ...]:
    """Return the numbers of points or modes, halved so many times and rounded up."""
    return tuple(-(-count // 2**times) for count in counts)


def preset(task: Task) -> UnoConfig:
    """Return the U-NO of a preset."""
    modes, padding = task.n_modes, task.padding
    return task.choose(
        smoke=UnoConfig(width=8, n_modes=modes, padding=padding),
        quick=UnoConfig(width=8 if task.n_dims == 3 else 12, n_modes=modes, padding=padding),
        published=UnoConfig(n_modes=modes) if task.n_dims == 1 else UnoConfig(),
    )


MODEL = ModelEntry(config=UnoConfig, network=Uno, preset=preset)
