from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from lsm_core.evaluation.edges import edge_ratio
from lsm_core.experiments.presets import experiment, model_config, parameters
from lsm_core.experiments.protocols import PROTOCOLS, data_plan
from lsm_core.layers.convolution import convolve
from lsm_core.layers.residual_block import (
    ChannelNormalization,
    convolved,
    doubled,
    normalized_channels,
)
from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm_ours import WAVE_BLOCKS, LsmOursConfig
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.normalization import fit_normalization
from lsm_core.surrogates.operator import build_operator, shape_of_one_step
from lsm_core.surrogates.surrogate import Surrogate, predict
from lsm_core.training.batches import BatchesInMemory, permutations
from lsm_core.training.loop import fit
from lsm_core.training.state import start_training
from tests.lsm_core.experiments.learning import smoke_fields

PERIODIC = LsmOursConfig(
    width=4,
    n_scales=3,
    n_waves=3,
    boundary="circular",
    has_coordinates=False,
    normalization="none",
)


def model(config: LsmOursConfig, space: tuple[int, ...]) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(config, ProblemShape(space=space, n_inputs=2, n_outputs=1)).double()


@pytest.mark.parametrize("normalization", ["none", "instance"])
@pytest.mark.parametrize("space", [(16,), (16, 8), (8, 8, 8)])
def test_a_periodic_field_that_is_shifted_by_coarse_cells_gives_the_shifted_result(
    space: tuple[int, ...], normalization: ChannelNormalization
) -> None:
    network = model(replace(PERIODIC, normalization=normalization), space)
    field = torch.randn(2, *space, 2, dtype=torch.float64)
    axes = tuple(range(1, 1 + len(space)))
    moved = network(field.roll((4,) * len(space), axes))
    torch.testing.assert_close(moved, network(field).roll((4,) * len(space), axes))


def test_samples_do_not_mix_in_training() -> None:
    network = model(LsmOursConfig(width=4, n_scales=2), (12, 9)).train()
    field = torch.randn(3, 12, 9, 2, dtype=torch.float64)
    alone = torch.cat([network(one.unsqueeze(0)) for one in field])
    torch.testing.assert_close(network(field), alone)


@pytest.mark.parametrize("kind", ["convolutions", "waves"])
def test_what_a_residual_block_adds_depends_on_the_form_of_each_channel_alone(kind: str) -> None:
    network = model(LsmOursConfig(width=4, n_scales=2), (12,))
    block = network.down[0] if kind == "convolutions" else network.waves_up[0][1]
    field = torch.randn(1, 12, 4, dtype=torch.float64)
    sizes, shift = torch.tensor([100.0, 1.0, 10.0, 3.0]), torch.tensor([5.0, 0.0, -2.0, 1.0])
    larger = field * sizes + shift
    added, added_to_larger = block(field) - field, block(larger) - larger
    torch.testing.assert_close(added, added_to_larger, rtol=1e-4, atol=1e-4)


def test_normalised_channels_have_mean_zero_and_deviation_one_over_their_own_points() -> None:
    channels = normalized_channels(3 * torch.randn(2, 5, 7, 4, dtype=torch.float64) + 1)
    torch.testing.assert_close(channels.mean((1, 2)), torch.zeros(2, 4).double())
    variance = channels.var((1, 2), correction=0)
    torch.testing.assert_close(variance, torch.ones(2, 4).double(), atol=1e-4, rtol=0)
    a_point = normalized_channels(torch.randn(2, 1, 4))
    assert a_point.abs().max() < 1e-3  # it is its own mean


@pytest.mark.parametrize("boundary", ["zero", "circular"])
def test_products_of_neighbours_are_the_convolution(boundary: str) -> None:
    layer = torch.nn.Conv1d(3, 5, 3).double()
    field = torch.randn(2, 11, 3, dtype=torch.float64)
    expected = convolve(functional.gelu(field), layer.weight, layer.bias, boundary)
    torch.testing.assert_close(convolved(field, functional.gelu, layer, boundary), expected)


@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_pooling_undoes_doubling_of_what_is_linear_inside(n_dims: int) -> None:
    from lsm_core.layers.by_dimension import pool

    axes = torch.meshgrid(*[torch.arange(6.0)] * n_dims, indexing="ij")
    field = sum(axes).reshape(1, *[6] * n_dims, 1).double()
    back = pool(doubled(field, "zero"), "average")
    inside = (slice(None), *[slice(1, -1)] * n_dims)
    torch.testing.assert_close(back[inside], field[inside])


def test_tokens_differ_from_the_first_step_on() -> None:
    block = model(LsmOursConfig(width=16, n_scales=3), (64,)).solve[1]
    points = functional.layer_norm(torch.randn(1, 64, 32).double(), (64, 32))
    attention = torch.softmax(block.key(points), dim=1)
    tokens = attention.mT @ points
    assert tokens.std(dim=1).mean() > 0.1 * points.std()


def test_scales_have_waves_or_tokens_and_none_of_them_is_without_weights_to_learn() -> None:
    config = model_config("quick", "darcy", "lsm_ours")
    network = model(config, (16, 16))
    assert [len(blocks) for blocks in network.waves_down] == [*WAVE_BLOCKS, 0, 0]
    assert [len(blocks) for blocks in network.waves_up] == [*WAVE_BLOCKS, 0]
    has_tokens = [not isinstance(solve, nn.Identity) for solve in network.solve]
    assert has_tokens == [scale >= len(WAVE_BLOCKS) for scale in range(1, config.n_scales)]


def test_the_next_scale_has_half_as_many_waves() -> None:
    network = model(LsmOursConfig(width=4, n_scales=3, n_waves=5), (32, 32))
    assert [blocks[0].spectral.n_modes for blocks in network.waves_up[:2]] == [(5, 5), (2, 2)]


def test_waves_and_tokens_can_be_left_out() -> None:
    bare = model(LsmOursConfig(width=4, n_scales=3, n_waves=0, n_tokens=0), (16,))
    assert not [name for name in bare.state_dict() if "waves" in name or "solve" in name]
    assert bare(torch.randn(2, 16, 2, dtype=torch.float64)).shape == (2, 16, 1)


def test_it_is_no_larger_than_an_fno() -> None:
    for benchmark in PROTOCOLS:
        problem = data_plan("quick", benchmark).benchmark
        shape = shape_of_one_step(problem.shape, problem.n_steps)
        ours, fno = (
            parameters(model_config("quick", benchmark, name), shape)
            for name in ("lsm_ours", "fno")
        )
        assert ours <= fno


def test_coordinates_are_where_a_problem_has_ends() -> None:
    for benchmark in ("burgers", "navier_stokes"):
        config = model_config("quick", benchmark, "lsm_ours")
        assert (config.has_coordinates, config.boundary) == (False, "circular")
    config = model_config("quick", "darcy", "lsm_ours")
    assert (config.has_coordinates, config.boundary) == (True, "zero")


def test_neither_the_ends_of_a_period_nor_the_edges_of_patches_show() -> None:
    """Where the released form has patches and where the period ends, errors are as elsewhere."""
    cell = experiment("smoke", "burgers", "lsm_ours")
    config = replace(cell.training, epochs=25)
    train, test = smoke_fields("burgers", "train"), smoke_fields("burgers", "test")
    torch.manual_seed(0)
    surrogate = Surrogate(
        build_operator(cell.model, cell.data.benchmark),
        fit_normalization(config.input_normalization, train.inputs),
        fit_normalization(config.target_normalization, train.targets),
    )
    batches = BatchesInMemory(train, config.batch_size, permutations(len(train), seed=0))
    list(fit(start_training(surrogate, config, len(batches)), batches, config))
    predicted = predict(surrogate, test.inputs, len(test))
    # The released form of the smoke preset cuts its 64 points into four patches.
    assert edge_ratio(predicted, test.targets, (16,)) < 1.2
