from math import log2

import pytest
import torch
from torch import nn

from lsm_core.evaluation.cost import (
    count_parameters,
    forward_flops,
    measure_cost,
    saved_bytes,
)
from lsm_core.models.catalogue import build_model
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import release_form
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.problems.shape import ProblemShape

SMALL_FNO = FnoConfig(width=4, n_modes=3, n_layers=2)
CONFIGS = {
    "lsm": (release_form(width=8, n_scales=2), ProblemShape(space=(8, 8), n_inputs=1, n_outputs=1)),
    "points": (
        PointCloudConfig(body=SMALL_FNO, latent_shape=(8, 8), n_modes=3, deformation_width=8),
        ProblemShape(space=(20,), n_inputs=5, n_outputs=1),
    ),
}


class Fourier(nn.Module):
    def forward(self, field):
        return torch.fft.irfft(torch.fft.fft(torch.fft.rfft(field, dim=1), dim=1), n=32, dim=1)


class ComplexProduct(nn.Module):
    def forward(self, matrices):
        return torch.bmm(matrices, matrices)


class TwoViews(nn.Module):
    def forward(self, values):
        doubled = 2 * values
        return doubled[:1] * doubled[1:] * doubled[1:]


def test_a_linear_layer_costs_what_it_costs_on_paper():
    layer, points = nn.Linear(3, 5), torch.randn(2, 7, 3)
    assert count_parameters(layer) == 3 * 5 + 5
    assert forward_flops(layer, points) == 2 * (2 * 7) * 3 * 5
    # For the gradient of its weights it keeps its input, in float32.
    assert saved_bytes(layer, points) == 2 * 7 * 3 * 4


def test_two_linear_layers_keep_what_is_between_them_and_no_weights():
    layers, points = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), torch.randn(7, 3)
    assert saved_bytes(layers, points) == 7 * 3 * 4 + 7 * 5 * 4


def test_a_convolution_costs_its_taps():
    layer, field = nn.Conv2d(3, 5, 3, padding=1, bias=False), torch.randn(2, 3, 8, 6)
    assert forward_flops(layer, field) == 2 * (2 * 8 * 6) * 9 * 3 * 5


def test_frozen_parameters_are_not_counted_and_complex_ones_are_two():
    layer = nn.Linear(3, 5)
    layer.bias.requires_grad_(False)
    layer.mode = nn.Parameter(torch.zeros(4, dtype=torch.complex64))
    assert count_parameters(layer) == 3 * 5 + 2 * 4


def test_shared_memory_is_counted_once():
    values = torch.randn(2, 100, requires_grad=True)
    product = 100 * 4
    assert saved_bytes(TwoViews(), values) == values.numel() * 4 + product


def test_fourier_transforms_and_complex_products_are_counted():
    field = torch.randn(2, 32, 3)
    real, whole = 2 * 3 * 32 * 2.5 * log2(32), 2 * 3 * 17 * 5 * log2(17)
    assert forward_flops(Fourier(), field) == pytest.approx(2 * real + whole, abs=1.5)
    matrices = torch.randn(3, 4, 4, dtype=torch.complex64)
    assert forward_flops(ComplexProduct(), matrices) == 3 * 8 * 4**3


@pytest.mark.parametrize(("config", "growth"), [(release_form(width=8), 4), (SMALL_FNO, 4.3)])
def test_operations_grow_with_the_number_of_points(config, growth):
    counts = []
    for side in (32, 64, 128):
        shape = ProblemShape(space=(side, side), n_inputs=1, n_outputs=1)
        counts.append(forward_flops(build_model(config, shape), torch.rand(1, side, side, 1)))
    assert counts[1] / counts[0] == pytest.approx(growth, rel=0.1)
    assert counts[2] / counts[1] == pytest.approx(growth, rel=0.1)


def test_operations_and_kept_bytes_grow_with_the_batch():
    config, shape = CONFIGS["lsm"]
    model = build_model(config, shape)
    one, three = torch.rand(1, 8, 8, 1), torch.rand(3, 8, 8, 1)
    assert forward_flops(model, three) == pytest.approx(3 * forward_flops(model, one), rel=0.05)
    assert saved_bytes(model, three) > 2 * saved_bytes(model, one)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_all_costs_of_a_model_are_measured(name):
    config, shape = CONFIGS[name]
    model = build_model(config, shape)
    cost = measure_cost(config, shape, batch_size=2, n_repeats=2)
    assert cost.n_parameters == sum(p.numel() for p in model.parameters())
    assert cost.forward_flops == forward_flops(model, torch.rand(2, *shape.space, shape.n_inputs))
    assert cost.saved_bytes > 4 * 2 * shape.space[0]
    assert cost.step_seconds > 0


def test_the_peak_holds_weights_gradients_moments_and_what_is_kept():
    config = FnoConfig(width=32, n_modes=24, n_layers=3)
    shape = ProblemShape(space=(128, 128), n_inputs=1, n_outputs=1)
    cost = measure_cost(config, shape, batch_size=1, n_repeats=1)
    least = 4 * 4 * cost.n_parameters + cost.saved_bytes
    assert least < cost.peak_bytes < 4 * least


def test_memory_is_measured_where_it_can_be():
    config, shape = CONFIGS["lsm"]
    with pytest.raises(ValueError, match="not on meta"):
        measure_cost(config, shape, device="meta")
