"""Bring the authors' released checkpoints into the store."""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

from flows.errors import BadInput
from lsm_core.models.released_weights import ReleasedSettings, from_released
from lsm_core.names import BenchmarkName
from storage.location import Location

# The options of the released scripts. Patch sizes are listed first axis first, paddings last axis
# first, as the scripts have them.
SCRIPTS: dict[BenchmarkName, ReleasedSettings] = {
    "elasticity_p": ReleasedSettings(
        in_dim=2, out_dim=1, d_model=32, patch_size=(6, 6), padding=(0, 0)
    ),
    "elasticity_g": ReleasedSettings(
        in_dim=1, out_dim=1, d_model=32, patch_size=(3, 3), padding=(7, 7)
    ),
    "plasticity": ReleasedSettings(
        in_dim=1, out_dim=4, d_model=32, patch_size=(7, 2, 2), padding=(12, 1, 11)
    ),
    "navier_stokes": ReleasedSettings(
        in_dim=10, out_dim=1, d_model=64, patch_size=(4, 4), padding=(0, 0)
    ),
    "darcy": ReleasedSettings(in_dim=1, out_dim=1, d_model=64, patch_size=(6, 6), padding=(11, 11)),
    "airfoil": ReleasedSettings(
        in_dim=2, out_dim=1, d_model=32, patch_size=(14, 4), padding=(13, 3)
    ),
    "pipe": ReleasedSettings(in_dim=2, out_dim=1, d_model=48, patch_size=(9, 9), padding=(15, 15)),
}


def import_released(path: Path, benchmark: BenchmarkName, name: str, root: Location) -> Location:
    """Keep a released checkpoint as a model of ours and return its folder.

    The folder has the weights as safetensors and the settings they belong to as JSON.
    """
    if benchmark not in SCRIPTS:
        raise BadInput(f"no script was released for {benchmark}; known are {', '.join(SCRIPTS)}")
    settings = SCRIPTS[benchmark]
    try:
        model = from_released(read_state(path), settings)
    except (KeyError, RuntimeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise BadInput(
            f"{path} does not hold the released LSM of {benchmark} ({first}); its script's "
            f"settings are {asdict(settings)}"
        ) from error
    folder = root / "registry" / name
    described = {"benchmark": benchmark, "model": "lsm", "released": asdict(settings)}
    (folder / "weights.safetensors").write_bytes(save(model.state_dict()))
    (folder / "model.json").write_bytes(json.dumps(described, indent=1).encode())
    return folder


def read_state(path: Path) -> Mapping[str, Any]:
    """Return the arrays of a checkpoint by name; formats that could run code are refused."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    try:
        if path.suffix == ".npz":
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {key.removeprefix("state/"): file[key] for key in _weights(file.files)}
        if path.suffix == ".safetensors":
            return load(content)
        return dict(torch.load(io.BytesIO(content), weights_only=True, map_location="cpu"))
    except Exception as error:  # every reader has errors of its own
        raise BadInput(
            f"{path} is no checkpoint that can be read safely ({type(error).__name__}); expected "
            "a state dict saved by torch, or a .npz or .safetensors file"
        ) from error


def _weights(names: list[str]) -> list[str]:
    """Return the entries of an archive that are weights."""
    kept = [name for name in names if name.startswith(("state/", "iphi/"))]
    return kept or names
