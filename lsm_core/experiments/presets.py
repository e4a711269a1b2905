"""The presets: what is trained on which data, and how."""

from dataclasses import replace

from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.experiment import Experiment
from lsm_core.models.catalogue import ModelConfig
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import LsmConfig, paper_form, release_form, smooth_form
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName, ModelName, PresetName
from lsm_core.training.config import Scheme, TrainingConfig

RELEASED_WIDTH: dict[BenchmarkName, int] = {
    "navier_stokes": 64,
    "darcy": 64,
    "pipe": 48,
}
"""First width of the released scripts where it is not 32."""

RELEASED_SLOW: tuple[BenchmarkName, ...] = (
    "elasticity_p",
    "plasticity",
    "navier_stokes",
    "darcy",
)
"""Problems whose released scripts start at 5e-4, where the paper has 1e-3 for all."""

PERIODIC: tuple[BenchmarkName, ...] = ("burgers", "navier_stokes")


def experiment(
    preset: PresetName, benchmark: BenchmarkName, model: ModelName, seed: int = 0
) -> Experiment:
    """Return one cell of a preset."""
    return Experiment(
        preset=preset,
        data=data_plan(preset, benchmark),
        model_name=model,
        model=model_config(preset, benchmark, model),
        training=training_config(preset, benchmark),
        seed=seed,
    )


def model_config(preset: PresetName, benchmark: BenchmarkName, model: ModelName) -> ModelConfig:
    """Return the settings of a model in a preset."""
    config = _lsm(preset, benchmark) if model == "lsm" else _fno(preset, benchmark)
    if benchmark != "elasticity_p":
        return config
    if preset in ("smoke", "quick"):
        return PointCloudConfig(body=config, latent_shape=(32, 32), n_modes=10)
    return PointCloudConfig(body=config)


def training_config(preset: PresetName, benchmark: BenchmarkName) -> TrainingConfig:
    """Return how a preset trains."""
    if preset == "smoke":
        config = TrainingConfig(epochs=4, batch_size=4, schedule="one_cycle", learning_rate=2e-3)
    elif preset == "quick":
        config = TrainingConfig(
            epochs=30 if benchmark == "burgers" else 12,
            batch_size=20 if benchmark == "burgers" else 8,
            schedule="one_cycle",
            learning_rate=2e-3,
        )
    elif preset == "paper":
        config = TrainingConfig(epochs=500)
    else:
        # The released loops count epochs 0 to 500.
        rate = 5e-4 if benchmark in RELEASED_SLOW else 1e-3
        config = TrainingConfig(epochs=501, learning_rate=rate)
    scheme = _normalization(preset, benchmark)
    # Positions of scattered points are no values: they stay where they are.
    inputs: Scheme = "none" if benchmark == "elasticity_p" else scheme
    return replace(config, input_normalization=inputs, target_normalization=scheme)


def _normalization(preset: PresetName, benchmark: BenchmarkName) -> Scheme:
    """Return the released choice; small presets scale the other fields, too, to learn faster."""
    if benchmark in ("darcy", "plasticity"):
        return "pointwise"
    small = preset in ("smoke", "quick")
    return "channel" if small and benchmark not in PERIODIC else "none"


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
    return form(width=8, n_scales=3) if preset == "smoke" else form(width=16)


def _fno(preset: PresetName, benchmark: BenchmarkName) -> FnoConfig:
    """Return the FNO of a preset: in one dimension as its paper has it for Burgers."""
    periodic = benchmark in PERIODIC
    if preset == "smoke":
        n_smoke = 8 if benchmark == "burgers" else 4
        return FnoConfig(width=16, n_modes=n_smoke, padding=0 if periodic else 4)
    if benchmark == "burgers":
        return FnoConfig(width=32 if preset == "quick" else 64, n_modes=16)
    if preset == "quick":
        n_modes: int | tuple[int, ...] = (12, 6, 8) if benchmark == "plasticity" else 12
        return FnoConfig(width=24, n_modes=n_modes, padding=0 if periodic else 8)
    return FnoConfig(width=RELEASED_WIDTH.get(benchmark, 32), n_modes=12)
