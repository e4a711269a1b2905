"""Projectors between coordinate space and latent space, of one patch each.

A projector turns the points of a patch into latent tokens, and tokens back into points. The
attention-based one is the paper's; the others replace it in ablations.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_at_least, check_choices
from lsm_core.layers.forms import suits_kernels
from lsm_core.layers.kernels.patch_attention import (
    Points,
    Tokens,
    points_to_tokens,
    tokens_to_points,
)

Form = Literal["release", "paper"]
ProjectorKind = Literal["attention", "convolution", "average", "self-attention", "none"]


@dataclass(frozen=True, kw_only=True)
class ProjectorConfig:
    """How points become latent tokens and tokens become points.

    In the attention's `release` form the points are projected to queries of the tokens on the
    way back, and all projections have a bias. In the `paper` form the tokens are projected to
    keys and values, and no projection has a bias.
    """

    kind: ProjectorKind = "attention"
    n_tokens: int = 4
    n_heads: int = 8
    form: Form = "release"

    def __post_init__(self) -> None:
        check_choices(self, prefix="projector ")
        check_at_least(1, self, "n_tokens", "n_heads")


class Projector(nn.Module):
    """The points themselves as tokens: the solver works in coordinate space.

    Other projectors replace what they do otherwise.
    """

    def n_tokens(self, n_points: int) -> int:
        """Return how many tokens a patch of `n_points` becomes."""
        return n_points

    def to_latent(self, points: Points) -> Tokens:
        """Return the latent tokens of each patch (CoordToLatent)."""
        return points

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        """Return the points of each patch, given the solved tokens (LatentToCoord)."""
        return tokens


def build_projector(config: ProjectorConfig, width: int) -> Projector:
    """Return the projector for features of `width` channels."""
    if config.kind == "convolution":
        return ConvolutionProjector(width)
    if config.kind == "average":
        return AverageProjector()
    if config.kind == "self-attention":
        return SelfAttentionProjector(width, config.n_heads)
    if config.kind == "none":
        return Projector()
    return AttentionProjector(config, width)


class AttentionProjector(Projector):
    """Attention between the points of a patch and learned latent tokens.

    To latent space, with tokens T as queries (attention over the points s of a patch):

        T_x = T + sum over s of softmax_s(T . (x(s) W_K)) x(s) W_V

    and back, with the points as queries (attention over the tokens):

        y(s) = x(s) + sum over tokens of softmax(x(s) W_Q . T_y) T_y

    In the paper's form the second has x(s) . (T_y W'_K) as scores and T_y W'_V as values. The
    similarities are not scaled.
    """

    def __init__(self, config: ProjectorConfig, width: int) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        head_width = _head_width(width, config.n_heads)
        tokens = torch.rand(config.n_heads, config.n_tokens, head_width) / width
        self.tokens = nn.Parameter(tokens)
        projects_tokens = config.form == "paper"
        self.key = nn.Linear(width, width, bias=not projects_tokens)
        self.value = nn.Linear(width, width, bias=not projects_tokens)
        self.query = None if projects_tokens else nn.Linear(width, width)
        self.token_key = nn.Linear(width, width, bias=False) if projects_tokens else nn.Identity()
        self.token_value = nn.Linear(width, width, bias=False) if projects_tokens else nn.Identity()

    def n_tokens(self, n_points: int) -> int:
        """Return the number of learned tokens."""
        return self.tokens.shape[1]

    def to_latent(self, points: Points) -> Tokens:
        """Return the learned tokens plus what they attend to."""
        if suits_kernels(points):
            return self._to_latent_folded(points)
        keys, values = self._by_head(self.key(points)), self._by_head(self.value(points))
        attention = torch.softmax(self.tokens @ keys.mT, dim=-1)  # (patch, head, token, point)
        return _joined(self.tokens + attention @ values)

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        """Return the points plus what they attend to."""
        keys, values = self.token_key(tokens), self.token_value(tokens)
        if suits_kernels(points):
            query = self._weights_by_head(self.query, like=points)
            return tokens_to_points(points, keys, values, *query)
        queries = self._by_head(points if self.query is None else self.query(points))
        attention = torch.softmax(queries @ self._by_head(keys).mT, dim=-1)
        return points + _joined(attention @ self._by_head(values))

    def _by_head(
        self, rows: Float[Tensor, "patch row channel"]
    ) -> Float[Tensor, "patch head row head_width"]:
        return rows.unflatten(2, (self.n_heads, -1)).transpose(1, 2)

    def _to_latent_folded(self, points: Points) -> Tokens:
        """Return the same with the projections folded into the tokens, for the kernel."""
        weight, bias = self._weights_by_head(self.key, like=points)
        keys = (self.tokens @ weight).flatten(0, 1)
        offsets = torch.einsum("htd,hd->ht", self.tokens, bias).flatten()
        value_weight, value_bias = self._weights_by_head(self.value, like=points)
        tokens = self.tokens + value_bias.unsqueeze(1)
        residual = tokens.transpose(0, 1).flatten(1)  # (token, channel)
        return residual + points_to_tokens(points, keys, offsets, value_weight)

    def _weights_by_head(self, projection: nn.Linear | None, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias of each head; no projection is the identity without a bias."""
        width, heads = like.shape[-1], (self.n_heads, -1)
        weight: Tensor = torch.eye(width, dtype=like.dtype, device=like.device)
        bias: Tensor = like.new_zeros(width)
        if projection is not None:
            weight = projection.weight
            bias = bias if projection.bias is None else projection.bias
        return weight.unflatten(0, heads), bias.unflatten(0, heads)


class ConvolutionProjector(Projector):
    """Pointwise convolutions into latent space and back: every point is a token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into = nn.Linear(width, width)
        self.back = nn.Linear(width, width)

    def to_latent(self, points: Points) -> Tokens:
        """Return the tokens."""
        return self.into(points)

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        """Return the points."""
        return points + self.back(tokens)


class AverageProjector(Projector):
    """The mean of a patch as its only token, given back to every point."""

    def n_tokens(self, n_points: int) -> int:
        """Return one token a patch."""
        return 1

    def to_latent(self, points: Points) -> Tokens:
        """Return the tokens."""
        return points.mean(dim=1, keepdim=True)

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        """Return the points."""
        return points + tokens


class SelfAttentionProjector(Projector):
    """Attention among the points of a patch: every point is a token, the cost is quadratic."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        _head_width(width, n_heads)
        self.n_heads = n_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def to_latent(self, points: Points) -> Tokens:
        """Return the tokens."""
        query, key, value = (
            projection(points).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        return points + attended.transpose(1, 2).flatten(2)


def _joined(
    by_head: Float[Tensor, "patch head row head_width"],
) -> Float[Tensor, "patch row channel"]:
    """Return the channels of all heads side by side."""
    return by_head.transpose(1, 2).flatten(2)


def _head_width(width: int, n_heads: int) -> int:
    """Return the channels of each head."""
    if width % n_heads:
        raise ValueError(f"a width of {width} does not split into {n_heads} heads")
    return width // n_heads
