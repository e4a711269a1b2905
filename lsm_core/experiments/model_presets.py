"""The settings of every model in every preset.

`paper` and `release` have the models as large as the paper's table of efficiency has them. The
authors released scripts of LSM, whose FNO has the widths of LSM; the other baselines are the same
in both. `smoke` and `quick` are small: a cell takes seconds, and half a minute.
"""

from collections.abc import Callable
from dataclasses import replace

from lsm_core.layers.convolution_block import SMOOTH
from lsm_core.layers.normalization import NormalizationKind
from lsm_core.models.catalogue import GridModelConfig
from lsm_core.models.deeponet import DeeponetConfig
from lsm_core.models.ffno import FfnoConfig
from lsm_core.models.fno import FnoConfig
from lsm_core.models.galerkin import GalerkinConfig
from lsm_core.models.htnet import HtnetConfig
from lsm_core.models.kno import KnoConfig
from lsm_core.models.lsm import LsmConfig, paper_form, release_form, smooth_form
from lsm_core.models.mwt import MwtConfig
from lsm_core.models.resnet import ResnetConfig
from lsm_core.models.sno import SnoConfig
from lsm_core.models.swin import SwinConfig
from lsm_core.models.tfnet import TfnetConfig
from lsm_core.models.ufno import UfnoConfig
from lsm_core.models.unet import UnetConfig
from lsm_core.models.uno import UnoConfig
from lsm_core.names import BenchmarkName, ModelName, PresetName

RELEASED_WIDTH: dict[BenchmarkName, int] = {
    "navier_stokes": 64,
    "darcy": 64,
    "pipe": 48,
}
"""First width of the released scripts where it is not 32."""

PERIODIC: tuple[BenchmarkName, ...] = ("burgers", "navier_stokes")


def grid_model(preset: PresetName, benchmark: BenchmarkName, model: ModelName) -> GridModelConfig:
    """Return the settings of a model on a grid, or of the body of one on points."""
    return _SETTINGS[model](preset, benchmark)


def _lsm(preset: PresetName, benchmark: BenchmarkName) -> LsmConfig:
    """Return the LSM of a preset.

    The 1D settings of the paper were never published. Small presets use the form that suits smooth
    periodic problems where it applies; paper and release stay with what was published.
    """
    if preset == "paper":
        return paper_form()
    if preset == "release":
        return release_form(width=RELEASED_WIDTH.get(benchmark, 32))
    form = smooth_form if benchmark in PERIODIC else release_form
    if preset == "smoke":
        return form(width=8, n_scales=3)
    return form(width=8 if benchmark == "plasticity" else 16, n_scales=4)


def _unet(preset: PresetName, benchmark: BenchmarkName) -> UnetConfig:
    if preset == "smoke":
        config = UnetConfig(width=8, n_scales=3)
    elif preset == "quick":
        config = UnetConfig(width=16, n_scales=4)
    else:
        return UnetConfig()
    return replace(config, convolution=SMOOTH) if benchmark in PERIODIC else config


def _resnet(preset: PresetName, benchmark: BenchmarkName) -> ResnetConfig:
    if preset == "smoke":
        return ResnetConfig(width=8, n_blocks=(1, 1))
    if preset == "quick":
        return ResnetConfig(width=8, n_blocks=(1, 1, 1))
    return ResnetConfig()


def _tfnet(preset: PresetName, benchmark: BenchmarkName) -> TfnetConfig:
    # Instance normalisation, as is usual for problems that are stepped in time.
    if preset == "smoke":
        return TfnetConfig(width=8, n_scales=2, normalization="instance")
    if preset == "quick":
        return TfnetConfig(width=16, n_scales=3, normalization="instance")
    return TfnetConfig()


def _swin(preset: PresetName, benchmark: BenchmarkName) -> SwinConfig:
    # A window has as many tokens along every axis, so its attention grows with their product.
    window = 4 if benchmark == "plasticity" else 8
    if preset == "smoke":
        return SwinConfig(width=16, n_blocks=2, n_heads=2, window=window)
    if preset == "quick":
        return SwinConfig(width=32, n_blocks=4, n_heads=2, window=window)
    return SwinConfig()


def _deeponet(preset: PresetName, benchmark: BenchmarkName) -> DeeponetConfig:
    if preset == "smoke":
        return DeeponetConfig(width=64, n_sensors=16)
    if preset == "quick":
        return DeeponetConfig(width=64, n_sensors=32)
    return DeeponetConfig()


def _fno(preset: PresetName, benchmark: BenchmarkName) -> FnoConfig:
    """Return the FNO of a preset: in one dimension as its paper has it for Burgers."""
    modes, padding = _modes(preset, benchmark), _padding(preset, benchmark)
    if preset == "smoke":
        return FnoConfig(width=16, n_modes=modes, padding=padding)
    if preset == "quick":
        width = {"burgers": 32, "plasticity": 12}.get(benchmark, 20)
        return FnoConfig(width=width, n_modes=modes, padding=padding)
    width = 64 if benchmark == "burgers" else RELEASED_WIDTH.get(benchmark, 32)
    return FnoConfig(width=width, n_modes=modes)


def _ufno(preset: PresetName, benchmark: BenchmarkName) -> UfnoConfig:
    modes, padding = _modes(preset, benchmark), _padding(preset, benchmark)
    # As in TF-Net.
    normalization: NormalizationKind = "instance" if benchmark == "navier_stokes" else "batch"
    if preset == "smoke":
        config = UfnoConfig(width=8, n_modes=modes, n_fourier_layers=1, n_unet_layers=1)
    elif preset == "quick":
        width = 8 if benchmark == "plasticity" else 16
        config = UfnoConfig(width=width, n_modes=modes, n_fourier_layers=2, n_unet_layers=2)
    else:
        return UfnoConfig(n_modes=modes)
    return replace(config, padding=padding, normalization=normalization)


def _mwt(preset: PresetName, benchmark: BenchmarkName) -> MwtConfig:
    if preset == "smoke":
        return MwtConfig(width=4, order=2, n_modes=4, n_blocks=2)
    if preset == "quick":
        order = 2 if benchmark == "plasticity" else 3
        return MwtConfig(width=2, order=order, n_modes=8, n_blocks=2)
    return MwtConfig()


def _galerkin(preset: PresetName, benchmark: BenchmarkName) -> GalerkinConfig:
    modes = _modes(preset, benchmark)
    if preset == "smoke":
        return GalerkinConfig(width=16, n_layers=2, n_heads=2, decoder_width=8, n_modes=modes)
    if preset == "quick":
        return GalerkinConfig(width=32, n_layers=3, n_heads=2, decoder_width=12, n_modes=modes)
    return GalerkinConfig(n_modes=modes)


def _sno(preset: PresetName, benchmark: BenchmarkName) -> SnoConfig:
    config = SnoConfig(basis="fourier" if benchmark in PERIODIC else "chebyshev")
    if preset == "smoke":
        return replace(config, width=32)
    if preset == "quick":
        return replace(config, width=48, n_layers=4)
    return config


def _uno(preset: PresetName, benchmark: BenchmarkName) -> UnoConfig:
    modes, padding = _modes(preset, benchmark), _padding(preset, benchmark)
    if preset == "smoke":
        return UnoConfig(width=8, n_modes=modes, padding=padding)
    if preset == "quick":
        width = 8 if benchmark == "plasticity" else 12
        return UnoConfig(width=width, n_modes=modes, padding=padding)
    return UnoConfig(n_modes=16) if benchmark == "burgers" else UnoConfig()


def _htnet(preset: PresetName, benchmark: BenchmarkName) -> HtnetConfig:
    modes = _modes(preset, benchmark)
    if preset == "smoke":
        return HtnetConfig(width=8, depths=(1, 1), n_modes=modes, n_decoder_layers=2)
    if preset == "quick":
        return HtnetConfig(width=16, n_modes=modes, n_decoder_layers=3)
    return HtnetConfig(n_modes=modes)


def _ffno(preset: PresetName, benchmark: BenchmarkName) -> FfnoConfig:
    modes, padding = _modes(preset, benchmark), _padding(preset, benchmark)
    if preset == "smoke":
        return FfnoConfig(width=16, n_modes=modes, n_layers=2, padding=padding)
    if preset == "quick":
        width = 16 if benchmark == "plasticity" else 32
        return FfnoConfig(width=width, n_modes=modes, padding=padding)
    return FfnoConfig(n_modes=modes)


def _kno(preset: PresetName, benchmark: BenchmarkName) -> KnoConfig:
    if preset == "smoke":
        return KnoConfig(width=16, n_modes=8, n_steps=4)
    if preset == "quick":
        return KnoConfig(width=32, n_modes=12, n_steps=6)
    return KnoConfig()


def _modes(preset: PresetName, benchmark: BenchmarkName) -> int | tuple[int, ...]:
    """Return how many Fourier modes a model keeps: more along the single axis of Burgers."""
    if preset == "smoke":
        return 8 if benchmark == "burgers" else 4
    if benchmark == "burgers":
        return 16
    return (8, 4, 6) if preset == "quick" and benchmark == "plasticity" else 12


def _padding(preset: PresetName, benchmark: BenchmarkName) -> int:
    """Return the zeros after each axis of a problem that is not periodic."""
    if benchmark in PERIODIC:
        return 0
    return 4 if preset == "smoke" or benchmark == "plasticity" else 8


_SETTINGS: dict[ModelName, Callable[[PresetName, BenchmarkName], GridModelConfig]] = {
    "lsm": _lsm,
    "unet": _unet,
    "resnet": _resnet,
    "tfnet": _tfnet,
    "swin": _swin,
    "deeponet": _deeponet,
    "fno": _fno,
    "ufno": _ufno,
    "mwt": _mwt,
    "galerkin": _galerkin,
    "sno": _sno,
    "uno": _uno,
    "htnet": _htnet,
    "ffno": _ffno,
    "kno": _kno,
}
