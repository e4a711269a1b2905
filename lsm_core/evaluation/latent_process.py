"""What an LSM does inside: features, latent tokens, solved tokens and features again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from lsm_core.models.lsm import LatentSpectralBlock


@dataclass(frozen=True, kw_only=True)
class SolvingProcess:
    """The solving process of one sample at one scale."""

    features_before: Float[np.ndarray, "*space channel"]
    tokens_before: Float[np.ndarray, "patch token channel"]
    tokens_after: Float[np.ndarray, "patch token channel"]
    features_after: Float[np.ndarray, "*space channel"]


def solving_process(
    model: nn.Module, inputs: Float[Tensor, "1 *space n_inputs"], scale: int = 0
) -> SolvingProcess:
    """Return what happens at a scale of the LSM inside a model, the finest being 0.

    A model that is applied step by step shows its first step. ValueError if it has no such scale.
    """
    blocks = [module for module in model.modules() if isinstance(module, LatentSpectralBlock)]
    if not 0 <= scale < len(blocks):
        raise ValueError(f"the model has {len(blocks)} latent spectral blocks, {scale} is not one")
    seen: dict[str, np.ndarray] = {}

    def noting(name: str) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
        def note(_: nn.Module, given: tuple[Any, ...], result: Tensor) -> None:
            seen.setdefault(f"{name}_before", given[0].detach().cpu().float().numpy())
            seen.setdefault(f"{name}_after", result.detach().cpu().float().numpy())

        return note

    block = blocks[scale]
    hooks = [
        block.register_forward_hook(noting("features")),
        block.solver.register_forward_hook(noting("tokens")),
    ]
    was_training = model.training
    try:
        model.eval()
        with torch.no_grad():
            model(inputs)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return SolvingProcess(
        features_before=seen["features_before"][0],
        tokens_before=seen["tokens_before"],
        tokens_after=seen["tokens_after"],
        features_after=seen["features_after"][0],
    )


def principal_components(
    values: Float[np.ndarray, "*points channel"], n_components: int = 2
) -> tuple[Float[np.ndarray, "*points component"], Float[np.ndarray, " component"]]:
    """Return points in the plane of their largest variance, and what part of it each axis has.

    The sign of a component is chosen so that its largest value is positive: of two equal inputs
    the pictures are equal.
    """
    flat = values.reshape(-1, values.shape[-1]).astype(np.float64)
    left, strengths, _ = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
    scores = left[:, :n_components] * strengths[:n_components]
    signs = np.sign(scores[np.abs(scores).argmax(0), np.arange(scores.shape[1])])
    variance = strengths**2
    parts = variance[:n_components] / max(float(variance.sum()), np.finfo(float).tiny)
    return (scores * np.where(signs == 0, 1.0, signs)).reshape(*values.shape[:-1], -1), parts
