"""The variants of an LSM in the paper's ablations and sweeps (tables 4 to 6), as configurations."""

from dataclasses import replace
from typing import Any

from lsm_core.models.lsm import LsmConfig


def without_multiscale(config: LsmConfig) -> LsmConfig:
    """Return the finest scale alone, cut into the patches that it had."""
    counts = config.coarsest_patches
    factor = 2 ** (config.n_scales - 1)
    finest = tuple(factor * n for n in counts) if isinstance(counts, tuple) else factor * counts
    return replace(config, widths=config.widths[:1], coarsest_patches=finest)


def with_projector(config: LsmConfig, **changes: Any) -> LsmConfig:
    """Return the model with another projector, or another number of latent tokens (C)."""
    return replace(config, projector=replace(config.projector, **changes))


def with_solver(config: LsmConfig, **changes: Any) -> LsmConfig:
    """Return the model with another latent solver, or another number of basis operators (N)."""
    return replace(config, solver=replace(config.solver, **changes))


def with_n_scales(config: LsmConfig, n_scales: int) -> LsmConfig:
    """Return the model with another number of scales, K in the paper.

    Scales beyond those of the configuration are as wide as its coarsest.
    """
    more = (config.widths[-1],) * (n_scales - config.n_scales)
    return replace(config, widths=config.widths[:n_scales] + more)


def ablations(config: LsmConfig) -> dict[str, LsmConfig]:
    """Return the rows of the paper's two ablation tables by name, the model itself last."""
    kinds = ("perceptron", "fourier", "polynomial")
    solvers = {f"{kind} solver": with_solver(config, kind=kind) for kind in kinds}
    *components, itself = component_ablations(config).items()
    return dict([*components, *solvers.items(), itself])


def component_ablations(config: LsmConfig) -> dict[str, LsmConfig]:
    """Return the rows of the table that replaces or leaves out parts, the model itself last."""
    return {
        "convolution projector": with_projector(config, kind="convolution"),
        "average pooling projector": with_projector(config, kind="average"),
        "self-attention projector": with_projector(config, kind="self-attention"),
        "without projector": with_projector(config, kind="none"),
        "without multiscale": without_multiscale(config),
        "without patches": replace(config, patchify=False, coarsest_patches=1),
        "without spectral solver": with_solver(config, kind="none"),
        "lsm": config,
    }


def sweeps(config: LsmConfig) -> dict[str, LsmConfig]:
    """Return the settings of the paper's hyperparameter table by name."""
    return (
        {f"{n} tokens": with_projector(config, n_tokens=n) for n in range(1, 7)}
        | {f"{n} basis operators": with_solver(config, n_basis=n) for n in range(0, 49, 8)}
        | {f"{n} scales": with_n_scales(config, n) for n in range(3, 8)}
    )
