"""Latent Spectral Models (Wu et al., ICML 2023), in any dimension.

A multiscale network of convolutions carries features at K resolutions. At each of them the field
is cut into patches, and each patch is projected to a few latent tokens, solved for in latent
space by a series of sines and cosines, and projected back.
"""

from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lsm_core.layers.convolution_block import (
    SMOOTH,
    ConvolutionBlock,
    ConvolutionConfig,
    DownwardBlocks,
    UpwardBlocks,
)
from lsm_core.layers.coordinates import AppendCoordinates
from lsm_core.layers.forms import suits_kernels
from lsm_core.layers.head import Head
from lsm_core.layers.neural_spectral import SolverConfig, build_solver
from lsm_core.layers.padding import check_padding, crop_to, pad_to, padded_shape
from lsm_core.layers.patches import join_patches, split_patches
from lsm_core.layers.projectors import ProjectorConfig, build_projector
from lsm_core.layers.shapes import Field, Inputs, Outputs
from lsm_core.models.entry import ModelEntry, Task
from lsm_core.problems.shape import ProblemShape


@dataclass(frozen=True, kw_only=True)
class LsmConfig:
    """Everything that can be chosen about an LSM; the defaults are the released 2D settings.

    There is one width for each scale, finest first, so the number of scales K is their count.
    Each axis is cut into `coarsest_patches` at the coarsest scale and into twice as many at each
    finer one; it is padded up to a multiple of the finest number. A tuple gives each axis its
    own. Without `patchify` every scale is one patch. With `recompute` the solving process is
    computed again in the backward pass, which takes more time and less memory.
    """

    widths: tuple[int, ...] = (32, 64, 128, 256, 256)
    patchify: bool = True
    coarsest_patches: int | tuple[int, ...] = 1
    projector: ProjectorConfig = field(default_factory=ProjectorConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
    convolution: ConvolutionConfig = field(default_factory=ConvolutionConfig)
    recompute: bool = False

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must be positive numbers, one a scale, got {self.widths}")
        counts = self.coarsest_patches
        if min(counts if isinstance(counts, tuple) else (counts,)) < 1:
            raise ValueError(f"coarsest_patches must be at least 1, got {counts}")

    @property
    def n_scales(self) -> int:
        """Return the number of resolutions, K in the paper."""
        return len(self.widths)


def release_form(*, width: int = 32, n_scales: int = 5) -> LsmConfig:
    """Return what the released scripts run: widths 1, 2, 4, 8, 8 times the first."""
    return LsmConfig(widths=tuple(width * min(2**scale, 8) for scale in range(n_scales)))


def paper_form() -> LsmConfig:
    """Return what the paper writes, with the convolutions of the released code.

    The widths are 32-64-128-128-128, there is one attention head, keys and values are projected
    in both directions, and the latent tokens lie in [0, pi].
    """
    return LsmConfig(
        widths=(32, 64, 128, 128, 128),
        projector=ProjectorConfig(n_heads=1, form="paper"),
        solver=SolverConfig(form="paper"),
    )


def smooth_form(*, width: int = 32, n_scales: int = 5) -> LsmConfig:
    """Return a form for smooth periodic problems: GELU, circular boundary, no batch norm."""
    return replace(release_form(width=width, n_scales=n_scales), convolution=SMOOTH)


class LatentSpectralBlock(nn.Module):
    """The solving process on one scale: to latent space, solve, and back, in each patch.

    CoordToLatent, Solve and LatentToCoord in the paper, with weights that all patches share.
    """

    def __init__(
        self,
        projector: ProjectorConfig,
        solver: SolverConfig,
        width: int,
        patch_shape: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.patch_shape = patch_shape
        self.projector = build_projector(projector, width)
        self.solver = build_solver(solver, width, self.projector.n_tokens(prod(patch_shape)))

    def forward(self, field: Field) -> Field:
        """Return the field, solved for in each patch."""
        points = split_patches(field, self.patch_shape)
        tokens = self.projector.to_latent(points)
        tokens = self.solver(tokens)
        points = self.projector.to_coordinates(points, tokens)
        return join_patches(points, self.patch_shape, tuple(field.shape[1:-1]))


class LatentSpectralNetwork(nn.Module):
    """The patchified multiscale network: from features to features of the same width."""

    def __init__(self, config: LsmConfig, space: tuple[int, ...]) -> None:
        super().__init__()
        self.space, self.recompute = space, config.recompute
        convolution, widths, n_dims = config.convolution, config.widths, len(space)
        self.boundary = convolution.boundary
        self.padded, patches = padded_and_patch_shapes(config, space)
        self.first = ConvolutionBlock(convolution, n_dims, *[widths[0]] * 3)
        self.down = DownwardBlocks(convolution, n_dims, widths)
        self.solve = nn.ModuleList(
            LatentSpectralBlock(config.projector, config.solver, width, patch)
            for width, patch in zip(widths, patches, strict=True)
        )
        self.up = UpwardBlocks(convolution, n_dims, widths)
        self.last = nn.Linear(widths[0], widths[0])

    def forward(
        self, features: Field, lift: nn.Linear | None = None, head: Head | None = None
    ) -> Outputs:
        """Return the features after all scales have been solved for.

        A lift before the network and a head after it can be merged with the linear maps at its
        ends, which changes nothing but the work: fields to be lifted have fewer channels.
        """
        padded = pad_to(features, self.padded, self.boundary)
        finest = self.first(padded) if lift is None else self.first.lifted(padded, lift)
        scales = self.down(finest)
        solved = [self.solved(*pair) for pair in zip(self.solve, scales, strict=True)]
        merged = crop_to(self.up(solved), self.space)
        return self.last(merged) if head is None else head(merged, before=self.last)

    def solved(self, block: nn.Module, scale: Tensor) -> Tensor:
        """Return the features of one scale after the solving process in its patches."""
        if self.recompute and torch.is_grad_enabled():
            result: Tensor = checkpoint(block, scale, use_reentrant=False)
            return result
        return block(scale)


class Lsm(nn.Module):
    """Latent Spectral Model on a regular grid."""

    def __init__(self, config: LsmConfig, shape: ProblemShape) -> None:
        super().__init__()
        width = config.widths[0]
        self.lift = nn.Linear(shape.n_inputs + shape.n_dims, width)
        self.network = LatentSpectralNetwork(config, shape.space)
        self.head = Head(width, 128, shape.n_outputs)
        self.with_coordinates = AppendCoordinates(shape.space)

    def forward(self, field: Inputs) -> Outputs:
        """Return the predicted fields."""
        inputs = self.with_coordinates(field)
        if not suits_kernels(inputs):
            return self.head(self.network(self.lift(inputs)))
        # A coordinate that is 1 everywhere makes a lift with a bias linear.
        inputs = functional.pad(inputs, (0, 1), value=1.0)
        return self.network(inputs, self.lift, self.head)


def padded_and_patch_shapes(
    config: LsmConfig, space: tuple[int, ...]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the padded shape of the finest scale and the patch shape of every scale."""
    counts = config.coarsest_patches
    if not config.patchify:
        counts = 1
    if isinstance(counts, int):
        counts = (counts,) * len(space)
    halvings = 2 ** (config.n_scales - 1)
    padded = padded_shape(space, tuple(halvings * count for count in counts))
    reason = f"{config.n_scales} scales and {counts} patches at the coarsest"
    check_padding(space, padded, reason)
    if config.patchify:
        patch = tuple(n // halvings // count for n, count in zip(padded, counts, strict=True))
        return padded, [patch] * config.n_scales
    return padded, [tuple(n // 2**scale for n in padded) for scale in range(config.n_scales)]


def preset(task: Task) -> LsmConfig:
    """Return the LSM of a preset.

    The 1D settings of the paper were never published. Small presets use the form that suits smooth
    periodic problems where it applies; paper and release stay with what was published.
    """
    form = smooth_form if task.is_periodic else release_form
    is_paper = task.preset == "paper"
    return task.choose(
        smoke=form(width=8, n_scales=3),
        quick=form(width=8 if task.n_dims == 3 else 16, n_scales=4),
        published=paper_form() if is_paper else release_form(width=task.released_width),
    )


MODEL = ModelEntry(config=LsmConfig, network=Lsm, preset=preset, latent=LatentSpectralNetwork)
