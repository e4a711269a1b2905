"""The presets: what is trained on which data, and how."""

from lsm_core.experiments.data_plans import data_plan
from lsm_core.experiments.experiment import Experiment
from lsm_core.models.catalogue import ModelConfig
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import paper_form, release_form, smooth_form
from lsm_core.names import BenchmarkName, ModelName, PresetName
from lsm_core.training.config import TrainingConfig

TRAINING: dict[PresetName, TrainingConfig] = {
    "smoke": TrainingConfig(epochs=4, batch_size=8, schedule="one_cycle", learning_rate=2e-3),
    "quick": TrainingConfig(epochs=30, schedule="one_cycle", learning_rate=2e-3),
    "paper": TrainingConfig(epochs=500),
    # The released loops count epochs 0 to 500.
    "release": TrainingConfig(epochs=501),
}

# The 1D settings of the paper were never published. Small presets use the form that suits smooth
# periodic problems; paper and release stay with what was published for two dimensions.
MODELS: dict[ModelName, dict[PresetName, ModelConfig]] = {
    "lsm": {
        "smoke": smooth_form(width=8, n_scales=3),
        "quick": smooth_form(width=16),
        "paper": paper_form(),
        "release": release_form(),
    },
    "fno": {
        "smoke": FnoConfig(width=16, n_modes=8),
        "quick": FnoConfig(width=32, n_modes=16),
        "paper": FnoConfig(width=64, n_modes=16),
        "release": FnoConfig(width=64, n_modes=16),
    },
}


def experiment(
    preset: PresetName, benchmark: BenchmarkName, model: ModelName, seed: int = 0
) -> Experiment:
    """Return one cell of a preset."""
    return Experiment(
        preset=preset,
        data=data_plan(preset, benchmark),
        model_name=model,
        model=MODELS[model][preset],
        training=TRAINING[preset],
        seed=seed,
    )
