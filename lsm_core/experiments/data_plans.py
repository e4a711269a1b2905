"""The data of each preset: how fine, and how many samples.

Free of torch, so that preparing data starts fast.
"""

from lsm_core.benchmarks.burgers import Burgers
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.names import BenchmarkName, PresetName


def data_plan(preset: PresetName, benchmark: BenchmarkName) -> DataPlan:
    """Return which samples a preset uses of a benchmark."""
    return DATA_PLANS[benchmark][preset]


def _burgers(resolution: int, n_train: int, n_validation: int, n_test: int) -> DataPlan:
    return DataPlan(
        benchmark=Burgers(resolution=resolution),
        n_train=n_train,
        n_validation=n_validation,
        n_test=n_test,
    )


# The paper takes Burgers from the FNO paper: 1000 samples to train on, 100 to test on. No script
# for it was released. 256 points is the first resolution of its table.
DATA_PLANS: dict[BenchmarkName, dict[PresetName, DataPlan]] = {
    "burgers": {
        "smoke": _burgers(64, 40, 8, 16),
        "quick": _burgers(256, 400, 40, 100),
        "paper": _burgers(256, 1000, 100, 100),
        "release": _burgers(256, 1000, 100, 100),
    },
}
