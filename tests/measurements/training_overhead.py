"""Print what tracking, checkpoints and orchestration add to the time of a training run.

    python -m tests.measurements.training_overhead              # LSM on Burgers, preset quick
    python -m tests.measurements.training_overhead fno darcy

Trains one cell of the quick preset twice, one after the other, twice over: as a bare loop with the
same evaluations, and as `lsm train` does it (Prefect task, process of its own, tracking store,
checkpoints every 20 seconds, model in the registry). What a command pays once is paid before: the
Prefect server, the data, and by a run of the smoke preset the tables of a new database and imports.
Whatever else a run needs is counted.
"""

import os
import sys
import tempfile
import time
from statistics import median
from typing import Any

import torch


def main() -> None:
    arguments = sys.argv[1:]
    model, benchmark = arguments if len(arguments) == 2 else ("lsm", "burgers")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LSM_STORE"] = folder
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        measure(model, benchmark)


def measure(model: Any, benchmark: Any) -> None:
    from flows.engine.own_server import prefect_api
    from flows.settings import Settings

    settings = Settings.from_environment()
    with prefect_api(settings):
        from flows.prepare import prepare
        from flows.train import train

        prepare([benchmark], "quick")
        train([benchmark], [model], "smoke", [0])
        bare, whole = [], []
        for seed in (0, 1):
            bare.append(bare_loop(model, benchmark, seed, settings))
            start = time.perf_counter()
            results = train([benchmark], [model], "quick", [seed])
            whole.append(time.perf_counter() - start)
            assert "error" not in results[0], results[0]["error"]
    print(f"{model} on {benchmark}, quick, {settings.n_workers} threads")
    print(f"bare loop {median(bare):8.1f} s   as a run {median(whole):8.1f} s", end="   ")
    print(f"overhead {median(whole) / median(bare) - 1:.1%}")


def bare_loop(model: Any, benchmark: Any, seed: int, settings: Any) -> float:
    """Return the seconds of training and evaluating, with nothing around it."""
    from flows.steps.data.datasets import location_of
    from flows.steps.training.fields import split_fields
    from lsm_core.evaluation.evaluate import evaluate, relative_errors
    from lsm_core.experiments.presets import experiment as experiment_of
    from lsm_core.surrogates.normalization import Moments, normalization
    from lsm_core.surrogates.operator import build_operator
    from lsm_core.surrogates.surrogate import Surrogate
    from lsm_core.training.loop import EpochReport, fit
    from lsm_core.training.state import start_training
    from storage.datasets.reader import open_dataset

    experiment = experiment_of("quick", benchmark, model, seed)
    torch.set_num_threads(settings.n_workers)
    start = time.perf_counter()
    dataset = open_dataset(location_of(experiment.data, settings.root))
    config = experiment.training
    fields = split_fields(dataset, experiment.data.benchmark, config, seed, settings.memory)
    torch.manual_seed(seed)
    surrogate = Surrogate(
        build_operator(experiment.model, experiment.data.benchmark),
        normalization(
            config.input_normalization, Moments.of(p.inputs for p in fields.parts["train"])
        ),
        normalization(
            config.target_normalization, Moments.of(p.targets for p in fields.parts["train"])
        ),
    )
    state = start_training(surrogate, config, len(fields.batches))
    for report in fit(state, fields.batches, config):
        if isinstance(report, EpochReport):
            relative_errors(surrogate, fields.parts["validation"], 100)
    for split in ("validation", "test"):
        evaluate(surrogate, fields.parts[split], 100)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
