"""Weights of the authors' released models, brought into ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lsm_core.layers.neural_spectral import SolverConfig
from lsm_core.layers.projectors import ProjectorConfig
from lsm_core.models.lsm import Lsm, LsmConfig
from lsm_core.problems.shape import ProblemShape

N_HEADS = 8
N_SCALES = 5


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

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> "ReleasedSettings":
        """Return the settings from options as a script takes them, with sizes as "3,3"."""
        space = options.get("space")
        return cls(
            in_dim=int(options["in_dim"]),
            out_dim=int(options["out_dim"]),
            d_model=int(options["d_model"]),
            num_token=int(options.get("num_token", 4)),
            num_basis=int(options.get("num_basis", 12)),
            patch_size=_numbers(options["patch_size"]),
            padding=_numbers(options["padding"]),
            space=None if space is None else _numbers(space),
        )

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


def from_released(
    state: Mapping[str, Any], settings: ReleasedSettings | Mapping[str, Any]
) -> nn.Module:
    """Return our model carrying a released state dict, given as names to arrays.

    A state with a deformation network is one of a point cloud.
    """
    if not isinstance(settings, ReleasedSettings):
        settings = ReleasedSettings.read(settings)
    if any(name.startswith("iphi/") for name in state):
        # Point clouds build on this module.
        from lsm_core.models.released_points import from_released_points

        return from_released_points(state, settings)
    shape = ProblemShape(space=settings.grid, n_inputs=settings.in_dim, n_outputs=settings.out_dim)
    model = Lsm(settings.config, shape)
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
    result["network.last.weight"] = _matrix(result["network.last.weight"])
    for scale in range(N_SCALES):
        theirs, ours = f"process{scale + 1}.", f"network.solve.{scale}."
        block = {name: released.pop(theirs + name) for name in _BLOCK_NAMES}
        result |= {ours + name: tensor for name, tensor in _renamed_block(block).items()}
    if released:
        raise ValueError(f"a released LSM state has no {', '.join(sorted(released))}")
    return result


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
    }
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
    key_value = _matrix(block["encoder_attn.weight"]), block["encoder_attn.bias"]
    sines, cosines = block["weights"].chunk(2, dim=1)
    return {
        "projector.tokens": block["latent"],
        "projector.key.weight": key_value[0][0::2],
        "projector.key.bias": key_value[1][0::2],
        "projector.value.weight": key_value[0][1::2],
        "projector.value.bias": key_value[1][1::2],
        "projector.query.weight": _matrix(block["decoder_attn.weight"]),
        "projector.query.bias": block["decoder_attn.bias"],
        "solver.sine_weights": sines,
        "solver.cosine_weights": cosines,
    }


def _matrix(weight: Tensor) -> Tensor:
    """Return the matrix of a pointwise convolution."""
    return weight.flatten(1)


def _numbers(value: Any) -> tuple[int, ...]:
    """Return the integers of "3,3" or of a sequence of integers."""
    if isinstance(value, (list, tuple)):
        return tuple(int(part) for part in value)
    return tuple(int(part) for part in str(value).split(","))
