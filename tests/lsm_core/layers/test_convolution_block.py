import pytest
import torch
from torch.nn import functional

from lsm_core.layers.convolution_block import ConvolutionConfig, MergingBlock, merging_channels

PLAIN = ConvolutionConfig(normalization="none")


def test_each_block_leaves_as_many_channels_as_the_next_finer_scale_has():
    assert merging_channels((2, 4, 8, 8)) == [(8, 8, 4), (4, 4, 2), (2, 2, 2)]
    assert merging_channels((3,)) == []


def test_merging_is_upsampling_joining_and_two_convolutions():
    torch.manual_seed(0)
    block = MergingBlock(PLAIN, 2, n_fine=3, n_coarse=5, n_outputs=2)
    fine, coarse = torch.randn(2, 6, 8, 3), torch.randn(2, 3, 4, 5)
    image = torch.cat(
        [
            fine.movedim(-1, 1),
            functional.interpolate(
                coarse.movedim(-1, 1), scale_factor=2, mode="bilinear", align_corners=True
            ),
        ],
        dim=1,
    )
    for layer in (block.block.first, block.block.second):
        kernel = layer.convolution
        image = functional.relu(functional.conv2d(image, kernel.weight, kernel.bias, padding=1))
    torch.testing.assert_close(block(fine, coarse), image.movedim(1, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("coarse_space", [(3,), (2, 3)])
def test_gradients_are_those_of_finite_differences(coarse_space):
    torch.manual_seed(0)
    block = MergingBlock(PLAIN, len(coarse_space), n_fine=2, n_coarse=2, n_outputs=2).double()
    fine = torch.randn(1, *(2 * n for n in coarse_space), 2, dtype=torch.float64)
    coarse = torch.randn(1, *coarse_space, 2, dtype=torch.float64)
    inputs = (fine.requires_grad_(), coarse.requires_grad_())
    assert torch.autograd.gradcheck(block, inputs, fast_mode=True)
