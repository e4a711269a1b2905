"""Projectors between coordinate space and latent space, of one patch each.

A projector turns the points of a patch into latent tokens, and tokens back into points. The
attention-based one is the paper's; the others replace it in ablations.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

ProjectorKind = Literal["attention", "convolution", "average", "self-attention", "none"]

Points = Float[Tensor, "patch point channel"]
Tokens = Float[Tensor, "patch token channel"]


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
    form: Literal["release", "paper"] = "release"

    def __post_init__(self) -> None:
        if self.n_tokens < 1:
            raise ValueError(f"n_tokens must be at least 1, got {self.n_tokens}")
        if self.n_heads < 1:
            raise ValueError(f"n_heads must be at least 1, got {self.n_heads}")


class Projector(nn.Module, ABC):
    """What every projector offers."""

    @abstractmethod
    def n_tokens(self, n_points: int) -> int:
        """Return how many tokens a patch of `n_points` becomes."""

    @abstractmethod
    def to_latent(self, points: Points) -> Tokens:
        """Return the latent tokens of each patch (CoordToLatent)."""

    @abstractmethod
    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        """Return the points of each patch, given the solved tokens (LatentToCoord)."""


def build_projector(config: ProjectorConfig, width: int) -> Projector:
    """Return the projector for features of `width` channels."""
    if config.kind == "convolution":
        return ConvolutionProjector(width)
    if config.kind == "average":
        return AverageProjector()
    if config.kind == "self-attention":
        return SelfAttentionProjector(width, config.n_heads)
    if config.kind == "none":
        return NoProjector()
    return AttentionProjector(config, width)


class AttentionProjector(Projector):
    """Attention between the points of a patch and learned latent tokens.

    To latent space, with tokens T as queries (attention over the points s of a patch):

        T_x = T + sum over s of softmax_s(T . (x(s) W_K)) x(s) W_V

    and back, with the points as queries (attention over the tokens):

        y(s) = x(s) + sum over tokens of softmax(x(s) W_Q . T_y) T_y

    The similarities are not scaled. Neither keys nor values of the points are ever formed:
    T . (x W_K) = x . (T W_K^T) needs one vector a token instead of one a point, and the values
    are projected after they have been summed over the points.
    """

    def __init__(self, config: ProjectorConfig, width: int) -> None:
        super().__init__()
        if width % config.n_heads:
            raise ValueError(f"a width of {width} does not split into {config.n_heads} heads")
        self.paper = config.form == "paper"
        self.n_heads, head_width = config.n_heads, width // config.n_heads
        tokens = torch.rand(config.n_heads, config.n_tokens, head_width) / width
        self.tokens = nn.Parameter(tokens)
        self.key = nn.Linear(width, width, bias=not self.paper)
        self.value = nn.Linear(width, width, bias=not self.paper)
        if self.paper:
            self.token_key = nn.Linear(width, width, bias=False)
            self.token_value = nn.Linear(width, width, bias=False)
        else:
            self.query = nn.Linear(width, width)

    def n_tokens(self, n_points: int) -> int:
        return self.tokens.shape[1]

    def to_latent(self, points: Points) -> Tokens:
        matrix, offset = self._folded(self.tokens, self.key)
        scores = matrix @ points.flatten(0, 1).T  # (head token, patch point)
        if offset is not None:
            scores = scores + offset[:, None]
        weights = torch.softmax(scores.unflatten(1, points.shape[:2]), dim=2)
        means = weights.transpose(0, 1) @ points  # (patch, head token, channel)
        by_head = means.unflatten(1, (self.n_heads, -1))
        values = torch.einsum("phtc,hdc->pthd", by_head, self._by_head(self.value.weight))
        tokens = (self.tokens.transpose(0, 1) + values).flatten(2)
        return tokens if self.value.bias is None else tokens + self.value.bias

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        values = tokens
        if self.paper:
            keys, values = self._in_heads(self.token_key(tokens)), self.token_value(tokens)
            scores = self._block_diagonal(keys) @ points.mT
        else:
            folded, offset = self._folded(self._in_heads(tokens), self.query)
            scores = torch.baddbmm(offset.unsqueeze(2), folded, points.mT)
        by_head = scores.unflatten(1, (self.n_heads, -1))
        weights = torch.softmax(by_head, dim=2).flatten(1, 2)  # (patch, head token, point)
        return torch.baddbmm(points, weights.mT, self._block_diagonal(self._in_heads(values)))

    def _folded(self, tokens: Tensor, projection: nn.Linear) -> tuple[Tensor, Tensor | None]:
        """Return matrix and offset that give T . (W x + b) from x, of all heads and tokens."""
        matrix = torch.einsum("...htd,hdc->...htc", tokens, self._by_head(projection.weight))
        if projection.bias is None:
            return matrix.flatten(-3, -2), None
        offset = torch.einsum("...htd,hd->...ht", tokens, self._by_head(projection.bias))
        return matrix.flatten(-3, -2), offset.flatten(-2)

    def _by_head(self, parameter: Tensor) -> Tensor:
        return parameter.unflatten(0, (self.n_heads, -1))

    def _in_heads(self, tokens: Tensor) -> Float[Tensor, "patch head token head_width"]:
        return tokens.unflatten(2, (self.n_heads, -1)).transpose(1, 2)

    def _block_diagonal(self, tokens: Tensor) -> Float[Tensor, "patch head_token channel"]:
        """Return each head's tokens in the channels of that head, with zeros elsewhere."""
        own_head = torch.eye(self.n_heads, dtype=tokens.dtype, device=tokens.device)
        spread = tokens.unsqueeze(3) * own_head[:, None, :, None]
        return spread.flatten(3).flatten(1, 2)


class ConvolutionProjector(Projector):
    """Pointwise convolutions into latent space and back: every point is a token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into = nn.Linear(width, width)
        self.back = nn.Linear(width, width)

    def n_tokens(self, n_points: int) -> int:
        return n_points

    def to_latent(self, points: Points) -> Tokens:
        return self.into(points)

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        return points + self.back(tokens)


class AverageProjector(Projector):
    """The mean of a patch as its only token, given back to every point."""

    def n_tokens(self, n_points: int) -> int:
        return 1

    def to_latent(self, points: Points) -> Tokens:
        return points.mean(dim=1, keepdim=True)

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        return points + tokens


class SelfAttentionProjector(Projector):
    """Attention among the points of a patch: every point is a token, the cost is quadratic."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        if width % n_heads:
            raise ValueError(f"a width of {width} does not split into {n_heads} heads")
        self.n_heads = n_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def n_tokens(self, n_points: int) -> int:
        return n_points

    def to_latent(self, points: Points) -> Tokens:
        query, key, value = (
            projection(points).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value)
        return points + attended.transpose(1, 2).flatten(2)

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        return tokens


class NoProjector(Projector):
    """The points themselves as tokens: the solver works in coordinate space."""

    def n_tokens(self, n_points: int) -> int:
        return n_points

    def to_latent(self, points: Points) -> Tokens:
        return points

    def to_coordinates(self, points: Points, tokens: Tokens) -> Points:
        return tokens
