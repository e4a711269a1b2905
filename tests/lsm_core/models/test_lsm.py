from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from lsm_core.layers.convolution_block import ConvolutionConfig
from lsm_core.layers.projectors import ProjectorConfig
from lsm_core.models.lsm import (
    Lsm,
    LsmConfig,
    padded_and_patch_shapes,
    paper_form,
    release_form,
    smooth_form,
)
from lsm_core.models.lsm_ablations import ablations, sweeps
from lsm_core.problems.shape import ProblemShape

SMALL = LsmConfig(widths=(8, 16, 16), projector=ProjectorConfig(n_heads=4))
SMALLER = replace(SMALL, widths=(8, 8))
PAPER_WIDTHS = (32, 64, 128, 128, 128)


def problem(*space, n_inputs=1, n_outputs=1):
    return ProblemShape(space=space, n_inputs=n_inputs, n_outputs=n_outputs)


def n_parameters(config, shape):
    return sum(parameter.numel() for parameter in Lsm(config, shape).parameters())


def test_there_are_as_many_parameters_as_in_the_released_models():
    assert n_parameters(release_form(width=32), problem(41, 41)) == 4_812_801
    assert n_parameters(release_form(width=64), problem(85, 85)) == 19_187_457
    assert n_parameters(release_form(width=48), problem(129, 129, n_inputs=2)) == 10_804_913
    assert n_parameters(release_form(), problem(101, 31, 20, n_outputs=4)) == 13_457_828
    assert n_parameters(LsmConfig(widths=PAPER_WIDTHS), problem(64, 64)) == 2_001_921


def test_ablations_have_the_papers_numbers_of_parameters():
    variants = ablations(LsmConfig(widths=PAPER_WIDTHS))
    counts = {name: n_parameters(config, problem(64, 64)) for name, config in variants.items()}
    assert counts["average pooling projector"] == counts["without projector"] == 1_835_745
    assert counts["without spectral solver"] == 1_990_401
    assert counts["without patches"] == counts["polynomial solver"] == counts["lsm"] == 2_001_921
    # The paper counts the latent tokens here, which self-attention does not use.
    assert counts["self-attention projector"] == 2_001_921 - 4 * sum(PAPER_WIDTHS)


@pytest.mark.parametrize(
    ("space", "padded", "patch"),
    [
        ((85, 85), (96, 96), (6, 6)),
        ((41, 41), (48, 48), (3, 3)),
        ((221, 51), (224, 64), (14, 4)),
        ((129, 129), (144, 144), (9, 9)),
        ((64, 64), (64, 64), (4, 4)),
        ((101, 31, 20), (112, 32, 32), (7, 2, 2)),
    ],
)
def test_padding_and_patches_of_the_released_scripts_are_derived(space, padded, patch):
    assert padded_and_patch_shapes(release_form(), space) == (padded, [patch] * 5)


def test_patch_counts_can_differ_between_axes_and_be_switched_off():
    config = replace(SMALL, coarsest_patches=(1, 3))
    assert padded_and_patch_shapes(config, (8, 24)) == ((8, 24), [(2, 2)] * 3)
    whole = replace(SMALL, patchify=False)
    assert padded_and_patch_shapes(whole, (8, 24)) == ((8, 24), [(8, 24), (4, 12), (2, 6)])


def test_more_scales_than_the_grid_allows_are_refused():
    Lsm(release_form(width=8, n_scales=7), problem(41, 41))
    with pytest.raises(ValueError, match="take fewer scales"):
        Lsm(release_form(width=8, n_scales=8), problem(41, 41))


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="widths"):
        LsmConfig(widths=())
    with pytest.raises(ValueError, match="coarsest_patches"):
        LsmConfig(coarsest_patches=0)


GRIDS = st.one_of(
    st.tuples(st.integers(4, 40)),
    st.tuples(st.integers(4, 20), st.integers(4, 20)),
    st.tuples(st.integers(4, 9), st.integers(4, 9), st.integers(4, 9)),
)
FORMS = st.sampled_from(
    [
        SMALL,
        SMALLER,
        replace(SMALL, patchify=False),
        replace(SMALL, coarsest_patches=2, widths=(8, 16)),
        replace(paper_form(), widths=(8, 16, 16)),
        smooth_form(width=8, n_scales=3),
        replace(SMALL, convolution=ConvolutionConfig(normalization="instance")),
    ]
)


def randomized(config, shape):
    """Return a model in eval mode whose parts all matter to about the same degree."""
    torch.manual_seed(0)
    model = Lsm(config, shape).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or name.endswith("projector.tokens"):
            parameter.data.normal_(std=0.5)
    return model


@settings(max_examples=15, deadline=None)
@given(GRIDS, FORMS, st.integers(1, 3), st.integers(1, 3))
def test_the_output_has_the_grid_of_the_input(space, config, n_inputs, n_outputs):
    model = Lsm(config, problem(*space, n_inputs=n_inputs, n_outputs=n_outputs))
    assert model(torch.randn(2, *space, n_inputs)).shape == (2, *space, n_outputs)


@settings(max_examples=8, deadline=None)
@given(GRIDS, FORMS)
def test_a_sample_does_not_depend_on_its_batch_in_eval_mode(space, config):
    model = randomized(config, problem(*space))
    batch = torch.randn(3, *space, 1)
    with torch.no_grad():
        together, alone = model(batch)[1:2], model(batch[1:2])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4 * alone.abs().max().item())


@settings(max_examples=8, deadline=None)
@given(GRIDS, FORMS)
def test_the_model_is_not_linear(space, config):
    model = randomized(config, problem(*space)).double()
    left, right = torch.randn(2, 1, *space, 1, dtype=torch.float64)
    with torch.no_grad():
        superposed = model(left + right) + model(torch.zeros_like(left))
        apart = model(left) + model(right)
    assert (superposed - apart).abs().max() > 1e-6 * apart.abs().max()


@settings(max_examples=8, deadline=None)
@given(GRIDS, FORMS)
def test_every_parameter_gets_a_gradient(space, config):
    _, patches = padded_and_patch_shapes(config, space)
    assume(all(prod(patch) > 1 for patch in patches))  # attention to one point needs no keys
    model = randomized(config, problem(*space)).double()
    model(torch.randn(2, *space, 1, dtype=torch.float64)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # The bias of the keys adds the same to all scores of a token: the softmax ignores it.
        if not name.endswith("projector.key.bias"):
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("space", [(12,), (4, 5), (3, 4, 3)])
def test_every_parameter_changes_the_output(space):
    model = randomized(SMALLER, problem(*space)).double()
    field = torch.randn(1, *space, 1, dtype=torch.float64)
    with torch.no_grad():
        before = model(field)
        for name, parameter in model.named_parameters():
            if name.endswith("projector.key.bias"):
                continue
            kept = parameter.clone()
            parameter.add_(0.1 * torch.randn_like(parameter))
            assert (model(field) - before).abs().max() > 1e-9, name
            parameter.copy_(kept)


@pytest.mark.parametrize("space", [(12,), (6, 5), (4, 4, 3)])
@pytest.mark.parametrize("name", list(ablations(SMALLER)))
def test_every_ablation_trains_in_every_dimension(name, space):
    assert_trains(ablations(SMALLER)[name], space)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(sweeps(SMALL)))
def test_every_setting_of_the_sweeps_trains(name):
    assert_trains(sweeps(SMALL)[name], (33,))


def assert_trains(config, space):
    torch.manual_seed(0)
    model = Lsm(config, problem(*space))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    field = torch.randn(4, *space, 1)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = (model(field) - field.square()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_state_dict_holds_all_that_a_model_learned():
    torch.manual_seed(0)
    shape = problem(12, 9)
    model, other = Lsm(SMALL, shape), Lsm(SMALL, shape)
    field = torch.randn(2, 12, 9, 1)
    model(field)  # moves the running statistics
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(field), model.eval()(field))


def test_recomputing_changes_no_gradient():
    torch.manual_seed(0)
    shape = problem(12, 9)
    model = Lsm(SMALL, shape).double()
    other = Lsm(replace(SMALL, recompute=True), shape).double()
    other.load_state_dict(model.state_dict())
    field = torch.randn(2, 12, 9, 1, dtype=torch.float64)
    for network in (model, other):
        network(field).square().sum().backward()
    for left, right in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad)
    for left, right in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(left, right)


def test_the_smooth_form_commutes_with_shifts_by_whole_patches_but_for_its_coordinates():
    torch.manual_seed(0)
    model = Lsm(smooth_form(width=8, n_scales=3), problem(16, 16))
    model.with_coordinates.coordinates.zero_()
    field = torch.randn(1, 16, 16, 1)
    shift = 16 // 2  # half the coarsest scale, which is one patch: its points are only reordered
    with torch.no_grad():
        torch.testing.assert_close(
            model(field.roll(shift, dims=1)), model(field).roll(shift, dims=1), atol=1e-5, rtol=1e-4
        )


def test_the_cost_of_a_point_does_not_grow_with_the_grid():
    flops = []
    for size in (64, 128):
        model = Lsm(release_form(width=8), problem(size, size)).eval()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.randn(1, size, size, 1))
        flops.append(counter.get_total_flops() / prod((size, size)))
    assert flops[1] < 1.1 * flops[0]
