"""Results and failures as runs keep them, with what a test says of them."""

from typing import Any

from lsm_core.result import Epoch, Failure, Result

RUN: dict[str, Any] = {
    "identity": "i" * 16,
    "protocol": "p" * 16,
    "study": "benchmark",
    "preset": "quick",
    "benchmark": "burgers",
    "resolution": (256,),
}


def result(model: str = "lsm", error: float = 0.02, seed: int = 0, **changes: Any) -> Result:
    """Return a result whose errors are all the same."""
    plain: dict[str, Any] = {
        **RUN,
        "model": model,
        "seed": seed,
        "validation": {"rel_l2": error},
        "test": {"rel_l2": error},
        "parameters": 1234,
        "mean_prediction": 1.0,
        "seconds_per_epoch": 0.5,
        "peak_bytes": 300 * 2**20,
        "epochs": 2,
        "n_train": 10,
        "updates": 6,
        "samples_seen": 20,
        "flops": 1.5e12,
        "history": [vars(epoch) for epoch in history(error, error)],
        "dataset": {"name": "data", "digest": "d" * 64},
        "code": "c" * 16,
        "settings": {
            "data": {"split_sizes": {"test": 4}},
            "training": {"batch_size": 4},
            "model": {"widths": [8, 16]},
        },
        "environment": {"device": "cpu", "machine": "any", "torch": "2"},
        "finished": "2026-11-16T12:00:00+00:00",
    }
    return Result.from_plain({**plain, **changes})


def failure(model: str = "lsm", error: str = "Diverged: nan", **changes: Any) -> Failure:
    """Return a run that did not end well."""
    return Failure.from_plain({**RUN, "model": model, "seed": 0, "error": error, **changes})


def history(*errors: float, validated: bool = True) -> list[Epoch]:
    """Return epochs with these errors in training, and on validation samples if there are any."""
    return [
        Epoch(
            epoch=number,
            train=error,
            validation=error if validated else None,
            learning_rate=1e-3,
            seconds=0.5,
            samples_per_second=20.0,
            peak_bytes=2**20,
        )
        for number, error in enumerate(errors, start=1)
    ]
