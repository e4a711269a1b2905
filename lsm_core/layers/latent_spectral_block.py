"""The paper's solving process on one scale: to latent space, solve, and back, in each patch."""

from math import prod

from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.layers.neural_spectral import SolverConfig, build_solver
from lsm_core.layers.patches import join_patches, split_patches
from lsm_core.layers.projectors import ProjectorConfig, build_projector


class LatentSpectralBlock(nn.Module):
    """CoordToLatent, Solve and LatentToCoord, with weights that all patches share."""

    def __init__(
        self,
        projector: ProjectorConfig,
        solver: SolverConfig,
        width: int,
        patch_shape: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.patch_shape = patch_shape
        self.projector = build_projector(projector, width)
        self.solver = build_solver(solver, width, self.projector.n_tokens(prod(patch_shape)))

    def forward(
        self, field: Float[Tensor, "batch *space channel"]
    ) -> Float[Tensor, "batch *space channel"]:
        """Return the field, solved for in each patch."""
        points = split_patches(field, self.patch_shape)
        tokens = self.projector.to_latent(points)
        tokens = self.solver(tokens)
        points = self.projector.to_coordinates(points, tokens)
        return join_patches(points, self.patch_shape, tuple(field.shape[1:-1]))
