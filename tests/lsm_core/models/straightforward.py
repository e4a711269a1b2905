"""LSM written in the plainest way, step by step as released: the oracle for the fast form.

Names and layouts are those of a released state dict. Nothing is folded, merged or recomputed.
"""

from itertools import pairwise
from math import pi

import torch
from torch import Tensor, nn
from torch.nn import functional

CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMALIZATION = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOLING = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


class DoubleConvolution(nn.Module):
    def __init__(self, n_dims: int, n_inputs: int, n_hidden: int, n_outputs: int) -> None:
        super().__init__()
        convolution, normalization = CONVOLUTION[n_dims], NORMALIZATION[n_dims]
        self.double_conv = nn.Sequential(
            convolution(n_inputs, n_hidden, kernel_size=3, padding=1, bias=False),
            normalization(n_hidden),
            nn.ReLU(inplace=True),
            convolution(n_hidden, n_outputs, kernel_size=3, padding=1, bias=False),
            normalization(n_outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, field: Tensor) -> Tensor:
        return self.double_conv(field)


class Down(nn.Module):
    def __init__(self, n_dims: int, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        block = DoubleConvolution(n_dims, n_inputs, n_outputs, n_outputs)
        self.maxpool_conv = nn.Sequential(POOLING[n_dims](2), block)

    def forward(self, field: Tensor) -> Tensor:
        return self.maxpool_conv(field)


class Up(nn.Module):
    def __init__(self, n_dims: int, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode=INTERPOLATION[n_dims], align_corners=True)
        self.conv = DoubleConvolution(n_dims, n_inputs, n_inputs // 2, n_outputs)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return self.conv(torch.cat([fine, self.up(coarse)], dim=1))


class Pointwise(nn.Module):
    def __init__(self, n_dims: int, width: int) -> None:
        super().__init__()
        self.conv = CONVOLUTION[n_dims](width, width, kernel_size=1)

    def forward(self, field: Tensor) -> Tensor:
        return self.conv(field)


class SpectralBlock(nn.Module):
    def __init__(
        self, n_dims: int, width: int, n_tokens: int, num_basis: int, patch: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.patch, self.n_heads, self.num_basis = patch, 8, num_basis
        self.weights = nn.Parameter(torch.rand(width, 2 * num_basis) / width)
        self.latent = nn.Parameter(torch.rand(8, n_tokens, width // 8) / width)
        self.encoder_attn = CONVOLUTION[n_dims](width, 2 * width, kernel_size=1)
        self.decoder_attn = CONVOLUTION[n_dims](width, width, kernel_size=1)
        frequencies = torch.arange(num_basis, dtype=torch.float64) / num_basis
        self.register_buffer("frequencies", frequencies, persistent=False)

    def to_latent(self, patches: Tensor) -> Tensor:
        n_patches, width = patches.shape[:2]
        key_value = self.encoder_attn(patches).view(n_patches, 8, width // 8, 2, -1)
        key, value = key_value.permute(3, 0, 1, 4, 2).contiguous()  # (patch, head, point, channel)
        latent = self.latent[None].repeat(n_patches, 1, 1, 1)
        attention = torch.softmax(torch.einsum("bhtc,bhlc->bhtl", latent, key), dim=-1)
        return torch.einsum("bhtl,bhlc->bhtc", attention, value) + latent

    def solve(self, tokens: Tensor) -> Tensor:
        frequencies = self.frequencies.to(tokens.dtype)
        angle = frequencies[None, None, None, :] * tokens[:, :, :, None] * pi
        basis = torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)
        return torch.einsum("bilm,im->bil", basis, self.weights) + tokens

    def to_coordinates(self, patches: Tensor, tokens: Tensor) -> Tensor:
        n_patches, width = patches.shape[:2]
        query = self.decoder_attn(patches).view(n_patches, 8, width // 8, -1)
        query = query.permute(0, 1, 3, 2).contiguous()
        attention = torch.softmax(torch.einsum("bhlc,bhtc->bhlt", query, tokens), dim=-1)
        points = torch.einsum("bhlt,bhtc->bhlc", attention, tokens)
        return points.permute(0, 1, 3, 2).contiguous().view(patches.shape) + patches

    def forward(self, field: Tensor) -> Tensor:
        batch, width, *space = field.shape
        n_dims = len(space)
        cells = [n for size, p in zip(space, self.patch, strict=True) for n in (size // p, p)]
        counts, inner = range(2, 2 * n_dims + 2, 2), range(3, 2 * n_dims + 2, 2)
        split = field.view(batch, width, *cells).permute(0, *counts, 1, *inner).contiguous()
        patches = split.view(-1, width, *self.patch)

        tokens = self.to_latent(patches)  # (patch, head, token, channel)
        n_patches, _, n_tokens, _ = tokens.shape
        tokens = tokens.permute(0, 1, 3, 2).contiguous().view(n_patches, width, n_tokens)
        tokens = self.solve(tokens).view(n_patches, 8, width // 8, n_tokens)
        tokens = tokens.permute(0, 1, 3, 2).contiguous()
        patches = self.to_coordinates(patches, tokens)

        split = patches.view(batch, *cells[0::2], width, *self.patch)
        pairs = [axis for i in range(n_dims) for axis in (1 + i, 2 + n_dims + i)]
        return split.permute(0, 1 + n_dims, *pairs).contiguous().view(field.shape)


class StraightforwardLsm(nn.Module):
    def __init__(
        self,
        *,
        in_dim: int,
        out_dim: int,
        d_model: int,
        patch_size: tuple[int, ...],
        padding: tuple[int, ...],
        num_token: int = 4,
        num_basis: int = 12,
    ) -> None:
        super().__init__()
        n_dims = len(patch_size)
        self.padding = padding
        widths = [d_model * factor for factor in (1, 2, 4, 8, 8)]
        self.inc = DoubleConvolution(n_dims, d_model, d_model, d_model)
        for i, (fine, coarse) in enumerate(pairwise(widths), start=1):
            self.add_module(f"down{i}", Down(n_dims, fine, coarse))
        for i, factor in enumerate((4, 2, 1, 1), start=1):
            joined = 2 * widths[4 - i]
            self.add_module(f"up{i}", Up(n_dims, joined, factor * d_model))
        self.outc = Pointwise(n_dims, d_model)
        for i, width in enumerate(widths, start=1):
            block = SpectralBlock(n_dims, width, num_token, num_basis, patch_size)
            self.add_module(f"process{i}", block)
        self.fc0 = nn.Linear(in_dim + n_dims, d_model)
        self.fc1 = nn.Linear(d_model, 128)
        self.fc2 = nn.Linear(128, out_dim)

    def forward(self, field: Tensor) -> Tensor:
        n_dims, space = field.ndim - 2, field.shape[1:-1]
        axes = [torch.linspace(0, 1, n).to(field.dtype) for n in space]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        grid = grid.expand(len(field), *grid.shape)
        features = self.fc0(torch.cat([field, grid], dim=-1)).movedim(-1, 1)
        features = functional.pad(features, [n for pad in self.padding for n in (0, pad)])

        scales = [self.inc(features)]
        for i in range(1, 5):
            scales.append(getattr(self, f"down{i}")(scales[-1]))
        solved = [getattr(self, f"process{i}")(x) for i, x in enumerate(scales, start=1)]
        features = solved[4]
        for i in range(1, 5):
            features = getattr(self, f"up{i}")(features, solved[4 - i])
        features = self.outc(features)

        for axis in range(n_dims):
            features = features.narrow(2 + axis, 0, space[axis])
        return self.fc2(functional.gelu(self.fc1(features.movedim(1, -1))))
