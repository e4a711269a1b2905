"""Samples of official files in a dataset that has others beside them."""

from typing import Any

import numpy as np

from flows.steps.added_samples import completed
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.extended_plan import ExtendedPlan
from storage.dataset_reader import open_dataset
from storage.location import Location

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def official_arrays(plan: DataPlan, root: Location, block: range) -> dict[int, Arrays]:
    """Return the official samples of a block by their numbers; none of a plan without any.

    They are copied from the dataset into which the files were converted.
    """
    if not isinstance(plan, ExtendedPlan) or plan.official is None:
        return {}
    official, problem = plan.official, plan.benchmark
    dataset = open_dataset(root / "datasets" / problem.name / official.dataset)
    names = [v.name for v in (*problem.with_role("input"), *problem.with_role("target"))]
    samples, first = {}, 0
    for split, size in plan.split_sizes.items():
        start = max(block.start, first)
        stop = min(block.stop, first + official.split_sizes[split])
        if start < stop:
            arrays = dataset.part(split, names)[start - first : stop - first]
            for sample in range(start, stop):
                samples[sample] = completed(arrays, sample - start, problem)
        first += size
    return samples
