"""Attention between the points of a patch and a few tokens, arranged to do and keep little.

The straightforward way projects every point to keys, values and queries. Most patches have more
points than tokens, and then the tokens take the projections instead:

- the scores of a point's key, T . (W x + b), are (W^T T) . x + T . b;
- values are projected after the points have been averaged;
- the scores of a point's query are found like those of its key.

What lies between points and tokens is computed again in the backward pass. Heads and tokens
together are the rows of one matrix a patch, in which each head uses its own channels. There and
back it is 1.7 times as fast as the straightforward way for patches of 36 points, 32 channels, 8
heads and 4 tokens. No double backward, no mask, no dropout; the similarities are not scaled.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

Points = Float[Tensor, "patch point channel"]
Tokens = Float[Tensor, "patch token channel"]
ByHead = Float[Tensor, "head head_width channel"]


def points_to_tokens(
    points: Points,
    keys: Float[Tensor, "head_token channel"],
    offsets: Float[Tensor, " head_token"],
    value_weight: ByHead,
) -> Tokens:
    """Return, for each token, the projected mean of the points, weighted by attention.

    The attention is the softmax over the points of a patch of `keys @ point + offsets`.
    """
    few_points = points.shape[1] < len(keys)
    values = functional.linear(points, value_weight.flatten(0, 1)) if few_points else points
    weight = None if few_points else value_weight
    tokens: Tensor = _PointsToTokens.apply(points, values, keys, offsets, weight, len(value_weight))
    return tokens


def tokens_to_points(
    points: Points,
    keys: Tokens,
    values: Tokens,
    query_weight: ByHead,
    query_bias: Float[Tensor, "head head_width"],
) -> Points:
    """Return each point plus the mean of the values, weighted by attention.

    The attention is the softmax over the tokens of `key . (query_weight @ point + query_bias)`.
    """
    n_heads = len(query_weight)
    queries = points
    projection: tuple[Tensor | None, Tensor | None] = (query_weight, query_bias)
    if points.shape[1] < n_heads * keys.shape[1]:
        queries = functional.linear(points, query_weight.flatten(0, 1), query_bias.flatten())
        projection = (None, None)
    result: Tensor = _TokensToPoints.apply(points, queries, keys, values, *projection, n_heads)
    return result


class _PointsToTokens(torch.autograd.Function):
    """Means of `values`, by head; a weight projects the means where the values are not yet."""

    @staticmethod
    def forward(
        ctx: Any,
        points: Tensor,
        values: Tensor,
        keys: Tensor,
        offsets: Tensor,
        weight: Tensor | None,
        n_heads: int,
    ) -> Tensor:
        ctx.save_for_backward(points, values, keys, offsets, weight)
        ctx.n_heads = n_heads
        means = _attention_to_points(points, keys, offsets).transpose(0, 1) @ values
        if weight is None:
            return _diagonal_blocks(means, n_heads)
        return _join_heads(_heads_first(means, n_heads) @ weight.mT, len(points))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        points, values, keys, offsets, weight = ctx.saved_tensors
        attention = _attention_to_points(points, keys, offsets)
        by_patch = attention.transpose(0, 1)  # (patch, head token, point)
        weight_gradient = None
        if weight is None:
            means_gradient = _block_diagonal(gradient, ctx.n_heads)
        else:
            outer = _split_heads(gradient, ctx.n_heads)
            weight_gradient = outer.mT @ _heads_first(by_patch @ values, ctx.n_heads)
            means_gradient = _patches_first(outer @ weight, len(points))
        attention_gradient = (means_gradient @ values.mT).transpose(0, 1).contiguous()
        scores_gradient = _softmax_gradient(attention_gradient, attention, axis=2).flatten(1)
        return (
            (scores_gradient.T @ keys).view(points.shape),
            by_patch.mT @ means_gradient,
            scores_gradient @ points.flatten(0, 1),
            scores_gradient.sum(1),
            weight_gradient,
            None,
        )


class _TokensToPoints(torch.autograd.Function):
    """Points plus means of `values`; weight and bias project the queries that are not yet."""

    @staticmethod
    def forward(
        ctx: Any,
        points: Tensor,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        n_heads: int,
    ) -> Tensor:
        ctx.save_for_backward(queries, keys, values, weight, bias)
        ctx.n_heads = n_heads
        _, attention = _attention_to_tokens(queries, keys, weight, bias, n_heads)
        spread = _block_diagonal(values, n_heads)
        return torch.baddbmm(points, attention.flatten(1, 2).mT, spread)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, weight, bias = ctx.saved_tensors
        n_heads = ctx.n_heads
        folded, attention = _attention_to_tokens(queries, keys, weight, bias, n_heads)
        attention_gradient = _block_diagonal(values, n_heads) @ gradient.mT
        scores_gradient = _softmax_gradient(
            attention_gradient.view(attention.shape), attention, axis=2
        ).flatten(1, 2)  # (patch, head token, point)
        values_gradient = _diagonal_blocks(attention.flatten(1, 2) @ gradient, n_heads)
        queries_gradient = scores_gradient.mT @ folded
        folded_gradient = scores_gradient @ queries
        if weight is None:
            keys_gradient = _diagonal_blocks(folded_gradient, n_heads)
            return gradient, queries_gradient, keys_gradient, values_gradient, None, None, None

        by_head = _split_heads(keys, n_heads)
        folded_gradient = _heads_first(folded_gradient, n_heads)
        offset_gradient = _heads_first(scores_gradient.sum(2, keepdim=True), n_heads)
        keys_gradient = torch.baddbmm(
            offset_gradient * bias.unsqueeze(1), folded_gradient, weight.mT
        )
        return (
            gradient,
            queries_gradient,
            _join_heads(keys_gradient, len(queries)),
            values_gradient,
            by_head.mT @ folded_gradient,
            (by_head * offset_gradient).sum(1),
            None,
        )


def _attention_to_points(
    points: Tensor, keys: Tensor, offsets: Tensor
) -> Float[Tensor, "head_token patch point"]:
    scores = torch.addmm(offsets.unsqueeze(1), keys, points.flatten(0, 1).T)
    return torch.softmax(scores.unflatten(1, points.shape[:2]), dim=2)


def _attention_to_tokens(
    queries: Tensor, keys: Tensor, weight: Tensor | None, bias: Tensor | None, n_heads: int
) -> tuple[Float[Tensor, "patch head_token channel"], Float[Tensor, "patch head token point"]]:
    """Return the keys as the queries meet them, and the attention that they give."""
    if weight is None or bias is None:
        folded = _block_diagonal(keys, n_heads)
        scores = folded @ queries.mT
    else:
        by_head = _split_heads(keys, n_heads)
        folded = _patches_first(by_head @ weight, len(queries))
        offsets = _patches_first(by_head @ bias.unsqueeze(2), len(queries))
        scores = torch.baddbmm(offsets, folded, queries.mT)
    return folded, torch.softmax(scores.unflatten(1, (n_heads, -1)), dim=2)


def _split_heads(tokens: Tensor, n_heads: int) -> Float[Tensor, "head patch_token head_width"]:
    return tokens.flatten(0, 1).unflatten(1, (n_heads, -1)).transpose(0, 1)


def _join_heads(tokens: Tensor, n_patches: int) -> Tokens:
    """Undo `_split_heads`."""
    return tokens.transpose(0, 1).reshape(n_patches, -1, tokens.shape[0] * tokens.shape[2])


def _heads_first(rows: Tensor, n_heads: int) -> Float[Tensor, "head patch_token channel"]:
    return rows.unflatten(1, (n_heads, -1)).transpose(0, 1).flatten(1, 2)


def _patches_first(rows: Tensor, n_patches: int) -> Float[Tensor, "patch head_token channel"]:
    """Undo `_heads_first`."""
    return rows.unflatten(1, (n_patches, -1)).transpose(0, 1).flatten(1, 2)


def _block_diagonal(tokens: Tensor, n_heads: int) -> Float[Tensor, "patch head_token channel"]:
    """Return each head's tokens in the channels of that head, with zeros elsewhere."""
    n_patches, n_tokens, width = tokens.shape
    by_head = tokens.unflatten(2, (n_heads, -1))
    spread = tokens.new_zeros(n_patches, n_heads, n_tokens, n_heads, width // n_heads)
    spread.diagonal(dim1=1, dim2=3).copy_(by_head.movedim(2, 3))
    return spread.view(n_patches, n_heads * n_tokens, width)


def _diagonal_blocks(spread: Tensor, n_heads: int) -> Tokens:
    """Return the transpose of `_block_diagonal`."""
    blocks = spread.unflatten(2, (n_heads, -1)).unflatten(1, (n_heads, -1))
    return blocks.diagonal(dim1=1, dim2=3).movedim(3, 2).flatten(2)


def _softmax_gradient(gradient: Tensor, attention: Tensor, axis: int) -> Tensor:
    """Return the gradient of the scores, given that of their softmax."""
    result: Tensor = torch.ops.aten._softmax_backward_data(
        gradient, attention, axis, attention.dtype
    )
    return result
