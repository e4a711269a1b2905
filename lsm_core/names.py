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
]
TIME_STEPPING: tuple[str, ...] = ("tfnet", "kno")
"""Models that read a history of frames and predict the next one."""

PresetName = Literal["smoke", "quick", "matched", "paper", "release"]

PRESET_PURPOSES: dict[PresetName, str] = {
    "smoke": "seconds a cell: shows that everything runs, not that anything is learned",
    "quick": "a laptop: minutes for the whole benchmark, every cell learns something real",
    "matched": "as quick, with every model as wide as it takes to have the parameters of LSM",
    "paper": "the paper's text: its data sizes, widths and 500 epochs; hours, best on a GPU",
    "release": "what the authors' released scripts run; hours, best on a GPU",
}

StudyName = Literal[
    "burgers-settings",
    "burgers-forms",
    "darcy-at-43",
    "ablations",
    "hyperparameters",
    "resolutions-darcy",
    "resolutions-burgers",
    "resolutions-navier-stokes",
    "transfer",
]
