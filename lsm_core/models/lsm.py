"""Latent Spectral Models (Wu et al., ICML 2023), in any dimension.

A multiscale network of convolutions carries features at K resolutions. At each of them the field
is cut into patches, and each patch is projected to a few latent tokens, solved for in latent
space by a series of sines and cosines, and projected back.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lsm_core.layers.by_dimension import pool
from lsm_core.layers.convolution import convolve
from lsm_core.layers.convolution_block import SMOOTH, ConvolutionBlock, ConvolutionConfig
from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.layers.head import Head
from lsm_core.layers.latent_spectral_block import LatentSpectralBlock
from lsm_core.layers.merging_block import MergingBlock, merging_channels
from lsm_core.layers.neural_spectral import SolverConfig
from lsm_core.layers.padding import crop_to, pad_to, padded_shape
from lsm_core.layers.projectors import ProjectorConfig
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
    return LsmConfig(widths=_growing_widths(width, n_scales, largest=8))


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


def _growing_widths(width: int, n_scales: int, largest: int) -> tuple[int, ...]:
    return tuple(width * min(2**scale, largest) for scale in range(n_scales))


class LatentSpectralNetwork(nn.Module):
    """The patchified multiscale network: from features to features of the same width."""

    def __init__(self, config: LsmConfig, space: tuple[int, ...]) -> None:
        super().__init__()
        self.space, self.recompute = space, config.recompute
        self.boundary, self.pooling = config.convolution.boundary, config.convolution.pooling
        widths, n_dims = config.widths, len(space)
        self.padded, patches = padded_and_patch_shapes(config, space)
        self.first = ConvolutionBlock(config.convolution, n_dims, *[widths[0]] * 3)
        self.down = nn.ModuleList(
            ConvolutionBlock(config.convolution, n_dims, fine, coarse, coarse)
            for fine, coarse in pairwise(widths)
        )
        self.solve = nn.ModuleList(
            LatentSpectralBlock(config.projector, config.solver, width, patch)
            for width, patch in zip(widths, patches, strict=True)
        )
        self.up = nn.ModuleList(
            MergingBlock(config.convolution, n_dims, fine, coming, out)
            for fine, coming, out in merging_channels(widths)
        )
        self.last = nn.Linear(widths[0], widths[0])

    def forward(
        self, features: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the features after all scales have been solved for."""
        return self.last(self.multiscale(self.first(self.pad(features))))

    def multiscale(
        self, finest: Float[Tensor, "batch *padded channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the features of all scales, solved for and merged, given those of the finest."""
        scales = self.downsample(finest)
        solved = [self.solved(*pair) for pair in zip(self.solve, scales, strict=True)]
        return crop_to(self.upsample(solved), self.space)

    def pad(self, field: Tensor) -> Tensor:
        """Return the field continued to a size that all scales and patches divide."""
        return pad_to(field, self.padded, self.boundary)

    def downsample(self, finest: Tensor) -> list[Tensor]:
        """Return the features at every scale, finest first."""
        scales = [finest]
        for block in self.down:
            scales.append(block(pool(scales[-1], self.pooling)))
        return scales

    def solved(self, block: nn.Module, scale: Tensor) -> Tensor:
        """Return the features of one scale after the solving process in its patches."""
        if self.recompute and torch.is_grad_enabled():
            result: Tensor = checkpoint(block, scale, use_reentrant=False)
            return result
        return block(scale)

    def upsample(self, scales: list[Tensor]) -> Tensor:
        """Return the finest scale with every coarser one merged into it, coarsest first."""
        *finer, features = scales
        for block, scale in zip(self.up, reversed(finer), strict=True):
            features = block(scale, features)
        return features


class Lsm(nn.Module):
    """Latent Spectral Model on a regular grid."""

    coordinates: Tensor

    def __init__(self, config: LsmConfig, shape: ProblemShape) -> None:
        super().__init__()
        width = config.widths[0]
        self.lift = nn.Linear(shape.n_inputs + shape.n_dims, width)
        self.network = LatentSpectralNetwork(config, shape.space)
        self.head = Head(width, 128, shape.n_outputs)
        self.register_buffer("coordinates", unit_coordinates(shape.space), persistent=False)

    def forward(
        self, field: Float[Tensor, "batch *space input"]
    ) -> Float[Tensor, "batch *space output"]:
        """Return the predicted fields."""
        finest = self.network.first.finish(self.lift_and_convolve(field))
        features = self.network.multiscale(finest)
        return self.head(features, before=self.network.last)

    def lift_and_convolve(
        self, field: Float[Tensor, "batch *space input"]
    ) -> Float[Tensor, "batch *padded channel"]:
        """Return the first convolution of the lifted and padded inputs.

        Lifting, padding and convolution are linear, so one convolution of the inputs, the
        coordinates and a field of ones (for the bias) does all three.
        """
        constant = functional.pad(self.coordinates, (0, 1), value=1.0)
        inputs = torch.cat([field, constant.expand(len(field), *constant.shape)], dim=-1)
        lift = torch.cat([self.lift.weight, self.lift.bias.unsqueeze(1)], dim=1)
        weight, bias = self.network.first.first.kernel()
        merged = torch.einsum("fw...,wi->fi...", weight, lift)
        return convolve(self.network.pad(inputs), merged, bias, self.network.boundary)


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
    if any(2 * size < full for size, full in zip(space, padded, strict=True)):
        raise ValueError(
            f"a grid of {space} would be padded to {padded} for {config.n_scales} scales and "
            f"{counts} patches at the coarsest, more than twice its size; take fewer scales"
        )
    if config.patchify:
        patch = tuple(n // halvings // count for n, count in zip(padded, counts, strict=True))
        return padded, [patch] * config.n_scales
    return padded, [tuple(n // 2**scale for n in padded) for scale in range(config.n_scales)]
