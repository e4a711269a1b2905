"""The names that users see, without importing what they name."""

from typing import Literal

BenchmarkName = Literal[
    "burgers",
    "darcy",
    "navier_stokes",
    "elasticity_p",
    "elasticity_g",
    "plasticity",
    "airfoil",
    "pipe",
]
ModelName = Literal[
    "lsm",
    "lsm_ours",
    "unet",
    "resnet",
    "tfnet",
    "swin",
    "deeponet",
    "fno",
    "ufno",
    "mwt",
    "galerkin",
    "sno",
    "uno",
    "htnet",
    "ffno",
    "kno",
    "transolver",
    "lno",
    "flare",
    "mean_field",
    "last_frame",
    "ridge",
    "pod_nn",
    "pod_rbf",
]
"""A model's name is that of its file in `lsm_core/models`."""

MODEL_TITLES: dict[ModelName, str] = {"lsm_ours": "LSM (ours)"}
"""What models are called in tables, where it is not their name."""

PresetName = Literal["smoke", "quick", "matched", "night", "paper", "release"]

PRESET_PURPOSES: dict[PresetName, str] = {
    "smoke": "seconds a cell: shows that everything runs, not that anything is learned",
    "quick": "a laptop: minutes for the whole benchmark, every cell learns something real",
    "matched": "as quick, with every model as wide as it takes to have the parameters of LSM",
    "night": "the models and recipe of quick, more data: ten minutes a cell, a night for all",
    "paper": "the paper's text: its data sizes, widths and 500 epochs; hours, best on a GPU",
    "release": "what the authors' released scripts run; hours, best on a GPU",
}

StudyName = Literal[
    "ablations",
    "hyperparameters",
    "resolutions-darcy",
    "resolutions-burgers",
    "resolutions-navier-stokes",
    "transfer",
    "stability",
    "burgers-forms",
    "darcy-at-43",
    "burgers-settings",
    "zero-shot-darcy",
    "zero-shot-burgers",
    "full-length",
    "ablations-ours",
    "budgets",
]

Precision = Literal["float32", "tf32", "bfloat16"]
"""The numbers that products and convolutions are made of; the latter two are for GPUs."""

Scheme = Literal["none", "pointwise", "channel", "box"]
"""How fields are normalised: not, by the statistics of every point, by those of a channel, or by
the range of a channel, which brings positions into the unit cube."""

OWN_NAME = r"^[a-z][a-z0-9_-]{1,47}$"
"""What a problem may be called that somebody brings: as benchmarks are, and dashes too."""

Statistics = Literal["running", "batch"]
"""What batch normalisation measures with: running statistics, or those of each test batch."""
