"""Weights of the released Transolver, LNO and FLARE, brought into ours."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lsm_core.models.catalogue import build_model
from lsm_core.models.flare import FlareConfig
from lsm_core.models.lno import LnoConfig
from lsm_core.models.transolver import TransolverConfig
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape

SuccessorConfig = TransolverConfig | LnoConfig | FlareConfig

Renaming = tuple[tuple[str, str], ...]

_TRANSOLVER: Renaming = (
    (r"preprocess\.linear_pre\.0", "lift.0"),
    (r"preprocess\.linear_post", "lift.2"),
    (r"blocks\.\d+\.ln_3", "head.0"),
    (r"blocks\.\d+\.mlp2", "head.1"),
    (r"blocks\.", "layers."),
    (r"\.ln_1\.", ".attention_norm."),
    (r"\.ln_2\.", ".feed_forward_norm."),
    (r"\.mlp\.linear_pre\.0", ".feed_forward.0"),
    (r"\.mlp\.linear_post", ".feed_forward.2"),
    (r"Attn\.in_project_fx", "attention.feature"),
    (r"Attn\.in_project_x", "attention.guide"),
    (r"Attn\.in_project_slice", "attention.slices"),
    (r"Attn\.to_q", "attention.query"),
    (r"Attn\.to_k", "attention.key"),
    (r"Attn\.to_v", "attention.value"),
    (r"Attn\.to_out\.0", "attention.output"),
    (r"Attn\.temperature", "attention.temperature"),
)
_LNO: Renaming = (
    (r"\.input\.", ".first."),
    (r"\.output\.", ".last."),
    (r"^trunk_projector", "trunk"),
    (r"^branch_projector", "lift"),
    (r"^attention_(projector|encoder)", "scores"),
    (r"^attention_decoder", "asking_scores"),
    (r"^out_mlp", "head"),
    (r"^attn_blocks", "layers"),
    (r"\.self_attn\.Wq", ".query"),
    (r"\.self_attn\.Wk", ".key"),
    (r"\.self_attn\.Wv", ".value"),
    (r"\.self_attn\.proj", ".output"),
    (r"\.ln1\.", ".attention_norm."),
    (r"\.ln2\.", ".feed_forward_norm."),
    (r"\.mlp\.", ".feed_forward."),
)
_FLARE: Renaming = (
    (r"^in_proj\.", "lift."),
    (r"^out_proj\.0\.", "head_norm."),
    (r"^out_proj\.1\.", "head."),
    (r"^blocks\.", "layers."),
    (r"\.norm1\.", ".attention_norm."),
    (r"\.norm2\.", ".feed_forward_norm."),
    (r"\.att\.k_proj\.", ".attention.key."),
    (r"\.att\.v_proj\.", ".attention.value."),
    (r"\.att\.out_proj\.", ".attention.output."),
    (r"\.att\.latent_q", ".attention.latents"),
    (r"\.mlp\.", ".feed_forward."),
    (r"\.?\bfc1\.", ".first."),
    (r"\.?\bfcs\.", ".hidden."),
    (r"\.?\bfc2\.", ".last."),
)
RENAMINGS: dict[type[SuccessorConfig], Renaming] = {
    TransolverConfig: _TRANSOLVER,
    LnoConfig: _LNO,
    FlareConfig: _FLARE,
}
SUCCESSORS: tuple[ModelName, ...] = ("transolver", "lno", "flare")
"""The models whose released weights can be brought in, beside LSM."""


def from_released_successor(
    state: Mapping[str, Any], config: SuccessorConfig, shape: ProblemShape
) -> nn.Module:
    """Return our model carrying a released state dict, given as names to arrays.

    The sizes of the configuration have to be those of the state; heads cannot be read from it.
    """
    model = build_model(config, shape)
    model.load_state_dict(renamed_successor(state, model, config))
    return model


def renamed_successor(
    state: Mapping[str, Any], model: nn.Module, config: SuccessorConfig
) -> dict[str, Tensor]:
    """Return released arrays under our names and in our layout.

    Where layouts differ the memory is the same in row-major order: FLARE's queries, and axes of
    one entry. It is linear, so it serves for gradients as well as for weights.
    """
    own = model.state_dict()
    renamed = {}
    for theirs, array in state.items():
        name = _our_name(theirs, own, RENAMINGS[type(config)])
        if name == "placeholder" and name not in own:
            continue  # never read on a grid with values
        if name not in own:
            raise ValueError(f"a released {type(model).__name__} has no {theirs} in these settings")
        renamed[name] = torch.as_tensor(array)
        if renamed[name].numel() == own[name].numel():
            renamed[name] = renamed[name].reshape(own[name].shape)
    return renamed


def _our_name(theirs: str, own: Mapping[str, Tensor], renaming: Renaming) -> str:
    name = theirs
    for pattern, replacement in renaming:
        name = re.sub(pattern, replacement, name)
    # Our convolutions hold a layer of torch's.
    inside = re.sub(r"\.(weight|bias)$", r".layer.\1", name)
    return inside if inside in own else name
