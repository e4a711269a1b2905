"""Weights of the authors' released point-cloud model, brought into ours."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lsm_core.models.catalogue import build_model
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.models.released_weights import ReleasedSettings, renamed
from lsm_core.problems.shape import ProblemShape

DEFORMATION = "iphi/"
"""What the names of the deformation network's weights begin with."""


def from_released_points(
    state: Mapping[str, Any], settings: ReleasedSettings | Mapping[str, Any]
) -> nn.Module:
    """Return our model carrying a released point-cloud state, given as names to arrays.

    Its inputs are the positions followed by the shape code. `padding` and `patch_size` of the
    settings decide the latent grid.
    """
    if not isinstance(settings, ReleasedSettings):
        settings = ReleasedSettings.read(settings)
    n_code = state[DEFORMATION + "fc_code.weight"].shape[1]
    config = PointCloudConfig(
        body=settings.config,
        latent_shape=settings.grid,
        n_modes=state["fftproject_in.weights1"].shape[-1],
        deformation_width=state[DEFORMATION + "fc0.weight"].shape[0],
        released_inverse=True,
    )
    # The number of points is no property of the model; one stands for any.
    shape = ProblemShape(space=(1,), n_inputs=settings.in_dim + n_code, n_outputs=settings.out_dim)
    model = build_model(config, shape)
    model.load_state_dict(renamed_points(state))
    return model


def renamed_points(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return released arrays under our names and in our layout."""
    released = {name: torch.as_tensor(array) for name, array in state.items()}
    result: dict[str, Tensor] = {}
    for theirs, ours in _PREFIXES.items():
        for name in [name for name in released if name.startswith(theirs)]:
            result[ours + name.removeprefix(theirs)] = released.pop(name)
    for lift in ("grid_lift.weight", "point_lift.weight"):
        result[lift] = result[lift].flatten(1)
    for theirs, ours in (("fftproject_in", "to_grid"), ("fftproject_out", "to_points")):
        rising = released.pop(f"{theirs}.weights1")
        negative = released.pop(f"{theirs}.weights2")
        result[f"{ours}.modes.weight"] = _mode_weights(rising, negative)
    # Only shapes without a code pass through this layer.
    for name in [name for name in released if name.startswith(DEFORMATION + "fc_no_code.")]:
        del released[name]
    return result | renamed(released)


_PREFIXES = {
    "convproject_in.": "grid_lift.",
    "convproject_out.": "point_lift.",
    DEFORMATION + "fc0.": "deformation.lift.",
    DEFORMATION + "fc_code.": "deformation.code.",
    DEFORMATION + "fc1.": "deformation.perceptron.0.",
    DEFORMATION + "fc2.": "deformation.perceptron.2.",
    DEFORMATION + "fc3.": "deformation.perceptron.4.",
    DEFORMATION + "fc4.": "deformation.perceptron.6.",
}


def _mode_weights(rising: Tensor, negative: Tensor) -> Tensor:
    """Return complex weights `(input, output, *mode)` of both signs as ours, modes first."""
    both = torch.cat([rising, negative], dim=2)
    return torch.view_as_real(both.movedim((0, 1), (-2, -1)).contiguous())
