import torch

from lsm_core.layers.kernels.trigonometric_series import series_by_angle_addition


def plain_series(tokens, sines, cosines, step, first):
    k = torch.arange(first, first + sines.shape[1], dtype=tokens.dtype)
    angle = tokens.unsqueeze(-1) * k * step
    return (sines * torch.sin(angle) + cosines * torch.cos(angle)).sum(-1)


def parameters(n_channels, n_rows):
    torch.manual_seed(0)
    shapes = (3, n_rows, 4), (n_channels, 6), (n_channels, 6)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_the_series_is_the_plain_sum():
    for n_channels in (1, 4):
        tokens, sines, cosines = parameters(n_channels, n_rows=5)
        for step, first in ((0.3, 0), (1.0, 1)):
            torch.testing.assert_close(
                series_by_angle_addition(tokens, sines, cosines, step, first),
                plain_series(tokens, sines, cosines, step, first),
            )


def test_its_gradients_are_right_for_own_and_for_shared_coefficients():
    for n_channels in (1, 4):
        inputs = parameters(n_channels, n_rows=2)
        for first in (0, 1):
            assert torch.autograd.gradcheck(
                lambda *values, first=first: series_by_angle_addition(*values, 0.7, first), inputs
            )


def test_it_is_the_same_for_any_number_of_threads():
    inputs = parameters(4, n_rows=300)
    results = []
    before = torch.get_num_threads()
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        series = series_by_angle_addition(*inputs, 0.3, 0)
        results.append([series, *torch.autograd.grad(series.sum(), inputs)])
    torch.set_num_threads(before)
    for alone, together in zip(*results, strict=True):
        assert torch.equal(alone, together)


def test_a_number_that_is_none_stays_one():
    tokens, sines, cosines = parameters(4, n_rows=5)
    tokens.data[1, 2, 3] = torch.nan
    series = series_by_angle_addition(tokens, sines, cosines, 0.3, 0)
    assert torch.equal(series.isnan(), tokens.isnan())


def test_many_tokens_are_worked_on_in_blocks():
    torch.manual_seed(0)
    tokens = torch.randn(40_000, 4)
    sines, cosines = torch.randn(2, 4, 12)
    torch.testing.assert_close(
        series_by_angle_addition(tokens, sines, cosines, 0.26, 0),
        plain_series(tokens, sines, cosines, 0.26, 0),
        rtol=1e-4,
        atol=1e-4,
    )


def test_nothing_but_tokens_and_weights_is_kept():
    kept = []
    tokens = torch.randn(100, 4, 8, requires_grad=True)
    weights = torch.randn(8, 12, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        series_by_angle_addition(tokens, weights, weights, 0.3, 0)
    assert sum(kept) <= tokens.numel() + 2 * weights.numel()
