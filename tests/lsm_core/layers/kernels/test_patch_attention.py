import pytest
import torch

from lsm_core.layers.kernels.patch_attention import points_to_tokens, tokens_to_points

N_HEADS, N_TOKENS, WIDTH = 2, 3, 8


def by_head(tensor):
    return tensor.unflatten(-1, (N_HEADS, -1)).transpose(-3, -2)


def plain_tokens(points, keys, offsets, value_weight):
    """Attention of each head over the points, written out head by head."""
    values = torch.einsum("plc,hdc->phld", points, value_weight)
    scores = torch.einsum("plc,mc->pml", points, keys) + offsets[:, None]
    attention = torch.softmax(scores, dim=-1).unflatten(1, (N_HEADS, N_TOKENS))
    return torch.einsum("phtl,phld->pthd", attention, values).flatten(2)


def plain_points(points, keys, values, query_weight, query_bias):
    query = torch.einsum("plc,hdc->phld", points, query_weight) + query_bias[:, None]
    attention = torch.softmax(query @ by_head(keys).mT, dim=-1)
    return points + (attention @ by_head(values)).transpose(1, 2).flatten(2)


def tensors(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def assert_same(ours, plain, inputs):
    for result, expected in zip(
        *(
            [f(*inputs), *torch.autograd.grad((f(*inputs) ** 3).sum(), inputs)]
            for f in (ours, plain)
        ),
        strict=True,
    ):
        torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


# Fewer points than heads times tokens are projected themselves; of more, the tokens are.
@pytest.mark.parametrize("n_points", [1, 4, 6, 20])
def test_tokens_are_those_of_plain_attention(n_points):
    rows = N_HEADS * N_TOKENS
    by_head_shape = (N_HEADS, WIDTH // N_HEADS, WIDTH)
    inputs = tensors((5, n_points, WIDTH), (rows, WIDTH), (rows,), by_head_shape)
    assert_same(points_to_tokens, plain_tokens, inputs)


@pytest.mark.parametrize("n_points", [1, 4, 6, 20])
def test_points_are_those_of_plain_attention(n_points):
    tokens = (5, N_TOKENS, WIDTH)
    by_head_shape = (N_HEADS, WIDTH // N_HEADS, WIDTH)
    inputs = tensors((5, n_points, WIDTH), tokens, tokens, by_head_shape, by_head_shape[:2])
    assert_same(tokens_to_points, plain_points, inputs)


def test_tokens_do_not_depend_on_the_order_of_points():
    points, keys, offsets, weight = tensors((2, 9, WIDTH), (6, WIDTH), (6,), (N_HEADS, 4, WIDTH))
    torch.testing.assert_close(
        points_to_tokens(points, keys, offsets, weight),
        points_to_tokens(points.flip(1), keys, offsets, weight),
    )
