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
ModelName = Literal["lsm", "fno"]
PresetName = Literal["smoke", "quick", "paper", "release"]

PRESET_PURPOSES: dict[PresetName, str] = {
    "smoke": "seconds a cell: shows that everything runs, not that anything is learned",
    "quick": "a laptop: minutes for the whole benchmark, every cell learns something real",
    "paper": "the paper's text: its data sizes, widths and 500 epochs; hours, best on a GPU",
    "release": "what the authors' released scripts run; hours, best on a GPU",
}
