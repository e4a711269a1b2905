"""A whole dataset made by one process."""

from flows.steps.data.datasets import plan_generation
from lsm_core.experiments.plans import DataPlan
from storage.datasets.reader import Dataset, open_dataset
from storage.location import Location


def generated(plan: DataPlan, root: Location) -> Dataset:
    """Make what is missing of a plan's dataset, and open it."""
    job = plan_generation(plan, root)
    for index in job.begin():
        job.generate_block(index)
    job.finish()
    return open_dataset(job.location)
