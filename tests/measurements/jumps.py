"""Print how much larger errors are near the ends of the period and the edges of patches.

    python -m tests.measurements.jumps STORE

Of every run on Burgers in a store: mean error within two points of these places, over that of the
rest. The places are the same for all models: where the released LSM has patches.
"""

import sys

from flows.steps.data.datasets import location_of
from flows.steps.models.packaging import trained_run
from flows.steps.results import stored_result
from flows.steps.training.fields import fields_of, part_of
from lsm_core.evaluation.edges import edge_ratio
from lsm_core.experiments.experiment import Experiment
from lsm_core.surrogates.surrogate import predict
from storage.datasets.reader import open_dataset
from storage.location import Location

PATCHES = 4
"""Of the released form at its coarsest scale, along the axis."""


def main() -> None:
    root = Location.parse(sys.argv[1])
    for identity in (root / "checkpoints").names():
        result = stored_result(root, identity)
        if result is None or result.benchmark != "burgers":
            continue
        run = trained_run(identity, root)
        data = Experiment.from_plain(result.settings).data
        sizes = {str(split): size for split, size in data.split_sizes.items()}
        dataset = open_dataset(location_of(data, root)).first(sizes)
        test = fields_of(part_of(dataset, run.benchmark, "test")[:], run.benchmark)
        predicted = predict(run.predictor.surrogate(), test.inputs, len(test))
        patch = test.inputs.shape[1] // PATCHES
        ratio = edge_ratio(predicted, test.targets, (patch,))
        print(
            f"{result.preset} {result.model} seed {result.seed}, {result.updates:,} updates: "
            f"error {result.error:.5f}, near edges {ratio:.2f} times the rest",
            flush=True,
        )


if __name__ == "__main__":
    main()
