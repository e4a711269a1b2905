"""The plain form of a model and that of its kernels, which CPUs take, are one model."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lsm_core.evaluation.evaluate import relative_l2
from lsm_core.layers.convolution_block import SMOOTH, ConvolutionBlock, MergingBlock
from lsm_core.layers.forms import plain_forms, suits_kernels
from lsm_core.layers.head import Head
from lsm_core.models.catalogue import ModelConfig, build_model
from lsm_core.models.lsm import LatentSpectralBlock, paper_form, release_form, smooth_form
from lsm_core.models.unet import UnetConfig
from lsm_core.problems.shape import ProblemShape

FORMS: dict[str, ModelConfig] = {
    "release": release_form(width=8, n_scales=3),
    "paper": replace(paper_form(), widths=(8, 16, 16)),
    "smooth": smooth_form(width=8, n_scales=3),
    "unet": UnetConfig(width=4, n_scales=3),
    "smooth unet": UnetConfig(width=4, n_scales=2, convolution=SMOOTH),
}
SPACES = [(32,), (18, 13), (6, 5, 9)]


def both(config: ModelConfig, space: tuple[int, ...], dtype: torch.dtype) -> list[list[Tensor]]:
    """Return output, gradients and buffers of the kernels, then of the plain form."""
    results = []
    for plain in (False, True):
        torch.manual_seed(0)
        shape = ProblemShape(space=space, n_inputs=2, n_outputs=1)
        model = build_model(config, shape).to(dtype)
        inputs = torch.randn(3, *space, 2, dtype=dtype, requires_grad=True)
        if plain:
            with plain_forms():
                results.append(_everything(model, inputs))
        else:
            assert suits_kernels(inputs)
            results.append(_everything(model, inputs))
    return results


def _everything(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    output = model(inputs)
    weight = torch.cos(torch.arange(output.numel(), dtype=output.dtype)).view_as(output)
    gradients = torch.autograd.grad((output * weight).sum(), [inputs, *model.parameters()])
    predicted = model.eval()(inputs)
    return [output, predicted, *gradients, *model.buffers()]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("form", FORMS)
def test_both_forms_are_equal_in_float64(form: str, space: tuple[int, ...]) -> None:
    kernels, plain = both(FORMS[form], space, torch.float64)
    largest = max(tensor.abs().max().item() for tensor in plain)
    for ours, theirs in zip(kernels, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12 * largest)


def _blocks() -> dict[str, tuple[nn.Module, list[Tensor]]]:
    """Return the layers that have two forms, each with inputs."""
    torch.manual_seed(0)
    released = release_form(width=8, n_scales=3)
    fine, coarse = torch.randn(3, 16, 12, 8), torch.randn(3, 8, 6, 16)
    return {
        "convolutions": (ConvolutionBlock(released.convolution, 2, 8, 8, 16), [fine]),
        "smooth convolutions": (ConvolutionBlock(SMOOTH, 2, 8, 8, 16), [fine]),
        "merging": (MergingBlock(released.convolution, 2, 8, 16, 8), [fine, coarse]),
        "released latent": (
            LatentSpectralBlock(released.projector, released.solver, 8, (4, 3)),
            [fine],
        ),
        "paper latent": (
            LatentSpectralBlock(paper_form().projector, paper_form().solver, 8, (4, 3)),
            [fine],
        ),
        "head": (Head(8, 128, 2), [fine]),
    }


def _there_and_back(layer: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    """Return the output and all gradients."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    output = layer(*leaves)
    weight = torch.cos(torch.arange(output.numel(), dtype=output.dtype)).view_as(output)
    return [output, *torch.autograd.grad((output * weight).sum(), [*leaves, *layer.parameters()])]


@pytest.mark.parametrize("name", _blocks())
def test_both_forms_of_a_layer_are_equal_in_float32(name: str) -> None:
    layer, inputs = _blocks()[name]
    kernels = _there_and_back(layer, inputs)
    with plain_forms():
        plain = _there_and_back(layer, inputs)
        exact = _there_and_back(layer.double(), [tensor.double() for tensor in inputs])
    n_large = 1 + len(inputs)
    for ours, theirs in zip(kernels[:n_large], plain[:n_large], strict=True):
        assert (ours - theirs).norm().item() < 1e-6 * theirs.norm().item()
    # Gradients of parameters are sums that nearly cancel, so that both forms round alike there.
    rounding = 1e-6 * max(gradient.norm().item() for gradient in exact[1:])
    for ours, theirs, right in zip(kernels, plain, exact, strict=True):
        assert (ours - right).norm().item() < 2 * (theirs - right).norm().item() + rounding


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("space", SPACES)
def test_the_kernels_round_no_worse_than_the_plain_form(form: str, space: tuple[int, ...]) -> None:
    # Both are sums of roundings, tens of layers deep: 1e-7 to 6e-6 from what they round, and no
    # nearer to each other than to that. So each is held against the same model in float64.
    exact = _predicted(FORMS[form], space, torch.float64)
    with plain_forms():
        plain = _predicted(FORMS[form], space, torch.float32)
    kernels = _predicted(FORMS[form], space, torch.float32)
    for ours, theirs, right in zip(kernels, plain, exact, strict=True):
        assert relative_l2(ours, right).item() < relative_l2(theirs, right).item() + 1e-6


def _predicted(config: ModelConfig, space: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Return what a model gives by the statistics of a batch and by its running ones."""
    torch.manual_seed(0)
    model = build_model(config, ProblemShape(space=space, n_inputs=2, n_outputs=1)).to(dtype)
    inputs = torch.randn(3, *space, 2).to(dtype)
    with torch.no_grad():
        return [output.double().flatten()[None] for output in (model(inputs), model.eval()(inputs))]


@pytest.mark.parametrize("form", ["smooth", "paper"])
def test_the_plain_form_can_be_differentiated_twice(form: str) -> None:
    torch.manual_seed(0)
    shape = ProblemShape(space=(8, 8), n_inputs=1, n_outputs=1)
    config = replace(FORMS[form], widths=(4, 8), convolution=SMOOTH)
    if form == "smooth":
        config = replace(config, projector=replace(config.projector, n_heads=2))
    model = build_model(config, shape).double()

    def slope(field: Tensor) -> Tensor:
        return torch.autograd.grad(model(field).square().sum(), field, create_graph=True)[0]

    field = torch.randn(1, 8, 8, 1, dtype=torch.float64, requires_grad=True)
    with plain_forms():
        assert torch.autograd.gradcheck(slope, (field,), fast_mode=True)
