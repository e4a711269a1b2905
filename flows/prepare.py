"""Flow `prepare`: the datasets of a preset, generated and complete."""

from typing import get_args

from prefect import flow

from flows.settings import Settings
from flows.tasks import generate_dataset
from lsm_core.names import BenchmarkName, PresetName


@flow(name="prepare", flow_run_name="prepare-{preset}")
def prepare(
    benchmarks: list[BenchmarkName] | None = None, preset: PresetName = "quick"
) -> dict[BenchmarkName, str]:
    """Fill the datasets of some benchmarks (of all if none are named) and return their places.

    What is there already is kept, so a second call ends at once.
    """
    from lsm_core.experiments.data_plans import data_plan

    settings = Settings.from_environment()
    settings.require_usable()
    names = benchmarks or list(get_args(BenchmarkName))
    return {name: generate_dataset(data_plan(preset, name), settings) for name in names}
