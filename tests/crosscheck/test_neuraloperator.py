"""Our FNO and U-NO beside those of the `neuraloperator` package, which is not installed by default.

Its import is wrapped because it pulls in packages whose warnings are not ours to mend.
"""

import warnings
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.coordinates import unit_coordinates
from lsm_core.models.fno import Fno, FnoConfig
from lsm_core.models.uno import Uno, UnoConfig
from lsm_core.problems.shape import ProblemShape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    neuralop_models = pytest.importorskip("neuralop.models")

pytestmark = pytest.mark.filterwarnings("ignore")

# The sides are even: on odd ones the package shifts the spectrum back by one mode too few.
CASES = [((32,), 6), ((16, 24), 4), ((12, 8, 10), 3)]


class EverySecondTime:
    """An activation that does nothing at every other call.

    Without a perceptron after the Fourier layer, version 2.0.0 applies its activation twice in a
    row, where the paper has it once.
    """

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        self.activation, self.n_calls = activation, 0

    def __call__(self, features: Tensor) -> Tensor:
        self.n_calls += 1
        return self.activation(features) if self.n_calls % 2 else features


def both_forms(space: tuple[int, ...], n_modes: int) -> tuple[Fno, nn.Module]:
    """Return our FNO and theirs, equal in all weights."""
    torch.manual_seed(0)
    config = FnoConfig(width=6, n_modes=n_modes, n_layers=3, head_width=20)
    ours = Fno(config, ProblemShape(space=space, n_inputs=2, n_outputs=3))
    theirs = neuralop_models.FNO(
        # Both signs along all axes but the last, where they count the modes 0 .. n/2.
        n_modes=(*[2 * n_modes] * (len(space) - 1), 2 * (n_modes - 1)),
        in_channels=2 + len(space),
        out_channels=3,
        hidden_channels=6,
        n_layers=3,
        lifting_channel_ratio=0,
        projection_channel_ratio=20 / 6,
        positional_embedding=None,
        use_channel_mlp=False,
    )
    theirs.fno_blocks.non_linearity = EverySecondTime(functional.gelu)
    copy_weights(ours, theirs)
    return ours, theirs


def copy_weights(ours: Fno, theirs: nn.Module) -> None:
    def fill(layer: nn.Module, linear: nn.Linear) -> None:
        layer.weight.copy_(linear.weight.reshape(layer.weight.shape))
        layer.bias.copy_(linear.bias)

    with torch.no_grad():
        fill(theirs.lifting.fcs[0], ours.lift)
        for i, convolution in enumerate(theirs.fno_blocks.convs):
            convolution.weight.tensor.copy_(centred(ours.network.spectral[i].weight))
            # The bias is that of the convolution; ours is in the layer beside it.
            local = ours.network.local[i]
            theirs.fno_blocks.fno_skips[i].conv.weight.copy_(local.weight.unsqueeze(-1))
            convolution.bias.copy_(local.bias.reshape(convolution.bias.shape))
        fill(theirs.projection.fcs[0], ours.head.hidden)
        fill(theirs.projection.fcs[1], ours.head.output)


def count(model: nn.Module) -> int:
    """Return the number of real numbers in the weights."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())


def centred(weight: Tensor) -> Tensor:
    """Return our weights by corner as theirs: modes from the most negative to the most positive."""
    corners = torch.view_as_complex(weight)
    _, n_inputs, n_outputs, *modes = corners.shape
    *leading, last = modes
    result = torch.zeros(n_inputs, n_outputs, *(2 * m for m in leading), last, dtype=torch.cfloat)
    halves = [(slice(m, 2 * m), slice(0, m)) for m in leading]
    for corner, signs in zip(corners, product(*halves), strict=True):
        result[(slice(None), slice(None), *signs)] = corner
    return result


@pytest.mark.parametrize(("space", "n_modes"), CASES)
def test_fno_predicts_the_same_with_the_same_weights(space, n_modes):
    ours, theirs = both_forms(space, n_modes)
    field = torch.randn(2, *space, 2)
    coordinates = unit_coordinates(space).expand(2, *space, len(space))
    lifted = torch.cat([field, coordinates], dim=-1).movedim(-1, 1)
    with torch.no_grad():
        expected = theirs(lifted).movedim(1, -1)
        predicted = ours(field)
    assert predicted.std() > 1e-3
    torch.testing.assert_close(predicted, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("space", "n_modes"), CASES)
def test_fno_has_as_many_parameters(space, n_modes):
    ours, theirs = both_forms(space, n_modes)
    assert count(ours) == count(theirs)


@pytest.mark.parametrize(("space", "n_modes"), [((32,), 8), ((16, 24), 6), ((12, 8, 10), 4)])
def test_the_operators_of_uno_have_as_many_parameters(space, n_modes):
    """Theirs has a perceptron after each operator, and lifts and projects in other ways."""
    ours = Uno(
        UnoConfig(width=4, n_modes=n_modes), ProblemShape(space=space, n_inputs=2, n_outputs=3)
    )

    def their_modes(count: int) -> tuple[int, ...]:
        return (*[2 * count] * (len(space) - 1), 2 * (count - 1))

    theirs = neuralop_models.UNO(
        in_channels=2,
        out_channels=3,
        hidden_channels=4,
        n_layers=5,
        uno_out_channels=[8, 16, 16, 8, 4],
        uno_n_modes=[their_modes(n_modes // k) for k in (1, 2, 2, 2, 1)],
        uno_scalings=[[scale] * len(space) for scale in (0.5, 0.5, 1, 2, 2)],
        # The last operator also sees the function that was contracted from its grid.
        horizontal_skips_map={4: 0},
        channel_mlp_skip="linear",
    )
    in_theirs = sum(count(block.convs) + count(block.fno_skips) for block in theirs.fno_blocks)
    assert sum(map(count, [*ours.contract, ours.bottom, *ours.expand])) == in_theirs
