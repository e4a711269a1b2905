"""Merging a coarse scale of a multiscale network into a finer one."""

from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.convolution_block import ConvolutionBlock, ConvolutionConfig
from lsm_core.layers.kernels.convolution import convolve
from lsm_core.layers.upsampling import convolve_upsampled


class MergingBlock(nn.Module):
    """Merges a coarser scale into a finer one: upsampling, then two convolutions of both."""

    def __init__(
        self, config: ConvolutionConfig, n_dims: int, n_fine: int, n_coarse: int, n_outputs: int
    ) -> None:
        super().__init__()
        self.boundary, self.n_fine = config.boundary, n_fine
        joined = n_fine + n_coarse
        self.block = ConvolutionBlock(config, n_dims, joined, joined // 2, n_outputs)

    def forward(
        self,
        fine: Float[Tensor, "batch *space channel"],
        coarse: Float[Tensor, "batch *half feature"],
    ) -> Float[Tensor, "batch *space output"]:
        """Return the merged features, at the finer resolution.

        The first convolution is applied to both parts apart, instead of to one long field.
        """
        weight, bias = self.block.first.kernel()
        fine_weight, coarse_weight = weight.split([self.n_fine, coarse.shape[-1]], dim=1)
        convolved = convolve(fine, fine_weight, bias, self.boundary)
        return self.block.finish(
            convolved + convolve_upsampled(coarse, coarse_weight, self.boundary)
        )


def merging_channels(widths: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return fine, coarse and output channels of the merging blocks, coarsest first.

    Each block leaves as many channels as the next finer scale has.
    """
    channels, coarse = [], widths[-1]
    for scale in reversed(range(len(widths) - 1)):
        channels.append((widths[scale], coarse, widths[max(scale - 1, 0)]))
        coarse = widths[max(scale - 1, 0)]
    return channels
