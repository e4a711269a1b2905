"""Weights of the authors' released models, brought into ours."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lsm_core.layers.neural_spectral import SolverConfig
from lsm_core.layers.projectors import ProjectorConfig
from lsm_core.models.catalogue import ModelConfig, build_model
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.problems.shape import ProblemShape

N_HEADS = 8
N_SCALES = 5
LATENT_SIDE = 96
"""Points along each axis of the latent grid of the released point-cloud model."""
DEFORMATION = "iphi/"
"""What the names of the deformation network's weights begin with."""


@dataclass(frozen=True, kw_only=True)
class ReleasedSettings:
    """The options of a released script that decide the model.

    `patch_size` is listed first axis first and `padding` last axis first, as the scripts do.
    """

    in_dim: int
    out_dim: int
    d_model: int
    num_token: int = 4
    num_basis: int = 12
    patch_size: tuple[int, ...]
    padding: tuple[int, ...]
    space: tuple[int, ...] | None = None

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the points along each axis, without padding.

        Where the scripts do not say it, it follows from their rule that a patch is a sixteenth
        of the padded axis.
        """
        if self.space is not None:
            return self.space
        return tuple(
            2 ** (N_SCALES - 1) * patch - padding
            for patch, padding in zip(self.patch_size, reversed(self.padding), strict=True)
        )

    @property
    def config(self) -> LsmConfig:
        """Return our configuration of the same model."""
        padded = (n + extra for n, extra in zip(self.grid, reversed(self.padding), strict=True))
        finest = (n // patch for n, patch in zip(padded, self.patch_size, strict=True))
        return LsmConfig(
            widths=tuple(self.d_model * factor for factor in (1, 2, 4, 8, 8)),
            coarsest_patches=tuple(n // 2 ** (N_SCALES - 1) for n in finest),
            projector=ProjectorConfig(n_tokens=self.num_token, n_heads=N_HEADS),
            solver=SolverConfig(n_basis=2 * self.num_basis),
        )


def from_released(state: Mapping[str, Any], settings: ReleasedSettings) -> nn.Module:
    """Return our model carrying a released state dict, given as names to arrays.

    A state with a deformation network is one of a point cloud: its inputs are positions followed
    by the code of the shape, and the settings' space is the latent grid: the released one if they
    do not say it, whatever the patches that it is cut into.
    """
    is_cloud = any(name.startswith(DEFORMATION) for name in state)
    if is_cloud and settings.space is None:
        settings = replace(settings, space=(LATENT_SIDE,) * len(settings.patch_size))
    config: ModelConfig = settings.config
    space, n_inputs = settings.grid, settings.in_dim
    if is_cloud:
        config = PointCloudConfig(
            body=settings.config,
            latent_shape=settings.grid,
            n_modes=state["fftproject_in.weights1"].shape[-1],
            deformation_width=state[DEFORMATION + "fc0.weight"].shape[0],
            released_inverse=True,
        )
        # The number of points is no property of the model; one stands for any.
        space, n_inputs = (1,), n_inputs + state[DEFORMATION + "fc_code.weight"].shape[1]
    shape = ProblemShape(space=space, n_inputs=n_inputs, n_outputs=settings.out_dim)
    model = build_model(config, shape)
    model.load_state_dict(renamed(state))
    return model


def renamed(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return released arrays under our names and in our layout.

    It is linear, so it serves for gradients as well as for weights.
    """
    released = {name: torch.as_tensor(array) for name, array in state.items()}
    result: dict[str, Tensor] = {}
    for theirs, ours in _prefixes().items():
        for name in [name for name in released if name.startswith(theirs)]:
            result[ours + name.removeprefix(theirs)] = released.pop(name)
    for name in _POINTWISE:
        if name in result:
            result[name] = result[name].flatten(1)
    for scale in range(N_SCALES):
        theirs, ours = f"process{scale + 1}.", f"network.solve.{scale}."
        block = {name: released.pop(theirs + name) for name in _BLOCK_NAMES}
        result |= {ours + name: tensor for name, tensor in _renamed_block(block).items()}
    for theirs, ours in (("fftproject_in", "to_grid"), ("fftproject_out", "to_points")):
        if f"{theirs}.weights1" in released:
            signs = [released.pop(f"{theirs}.weights{number}") for number in (1, 2)]
            result[f"{ours}.modes.weight"] = _mode_weights(*signs)
    # Only shapes without a code pass through this layer.
    unknown = [name for name in released if not name.startswith(DEFORMATION + "fc_no_code.")]
    if unknown:
        raise ValueError(f"a released LSM state has no {', '.join(sorted(unknown))}")
    return result


_POINTWISE = ("network.last.weight", "grid_lift.weight", "point_lift.weight")
_BLOCK_NAMES = (
    "latent",
    "weights",
    "encoder_attn.weight",
    "encoder_attn.bias",
    "decoder_attn.weight",
    "decoder_attn.bias",
)


def _prefixes() -> dict[str, str]:
    """Return the beginnings of names that only need another name, released to ours."""
    prefixes = {
        "fc0.": "lift.",
        "outc.conv.": "network.last.",
        "fc1.": "head.hidden.",
        "fc2.": "head.output.",
        "convproject_in.": "grid_lift.",
        "convproject_out.": "point_lift.",
        DEFORMATION + "fc0.": "deformation.lift.",
        DEFORMATION + "fc_code.": "deformation.code.",
    }
    for i in range(1, 5):
        prefixes[f"{DEFORMATION}fc{i}."] = f"deformation.perceptron.{2 * i - 2}."
    blocks = {"inc.": "network.first."}
    for i in range(1, N_SCALES):
        blocks[f"down{i}.maxpool_conv.1."] = f"network.down.{i - 1}."
        blocks[f"up{i}.conv."] = f"network.up.{i - 1}.block."
    for theirs, ours in blocks.items():
        for first, layer in ((0, "first"), (3, "second")):
            prefixes[f"{theirs}double_conv.{first}."] = f"{ours}{layer}.convolution."
            prefixes[f"{theirs}double_conv.{first + 1}."] = f"{ours}{layer}.normalization."
    return prefixes


def _renamed_block(block: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return one spectral block; key and value channels alternate in the released encoder."""
    weight, bias = block["encoder_attn.weight"].flatten(1), block["encoder_attn.bias"]
    sines, cosines = block["weights"].chunk(2, dim=1)
    return {
        "projector.tokens": block["latent"],
        "projector.key.weight": weight[0::2],
        "projector.key.bias": bias[0::2],
        "projector.value.weight": weight[1::2],
        "projector.value.bias": bias[1::2],
        "projector.query.weight": block["decoder_attn.weight"].flatten(1),
        "projector.query.bias": block["decoder_attn.bias"],
        "solver.sine_weights": sines,
        "solver.cosine_weights": cosines,
    }


def _mode_weights(rising: Tensor, negative: Tensor) -> Tensor:
    """Return complex weights `(input, output, *mode)` of both signs as ours, modes first."""
    both = torch.cat([rising, negative], dim=2)
    return torch.view_as_real(both.movedim((0, 1), (-2, -1)).contiguous())
