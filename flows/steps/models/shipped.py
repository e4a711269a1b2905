"""Trained models that come with the project: one file a problem, in `flows/box`.

A file is safetensors. Its tensors are the weights (`weights.`, those of the network in half
precision), the calibration (`trust.`), and a few inputs with what the model makes of them
(`given.`, `made.`), by which a test tells whether it still is what it was. Its metadata is a card:
settings, data, the result of the run and figures on samples that it has never seen.

    python -m infra.box STORE      makes the files from finished runs
"""

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from flows.steps.models.packaging import PackagedModel
    from storage.location import Location

BOX = Path(__file__).parent.parent.parent / "box"
ENDING = ".safetensors"
LARGEST = 3 * 2**20
"""Bytes that a file may have."""
SHIPPED = "@shipped"
"""Marks the model of a problem that comes with the project, where a source is named."""
Array = np.ndarray[Any, np.dtype[Any]]


def shipped_names() -> list[str]:
    """Return the problems of which a model is here."""
    return sorted(path.stem for path in BOX.glob(f"*{ENDING}"))


@cache
def shipped_card(name: str) -> dict[str, Any]:
    """Return what is known of the model of a problem, without loading it."""
    path = BOX / f"{name}{ENDING}"
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        return dict(json.loads(header["__metadata__"]["card"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadInput(f"{path} is no model that can be read here: {error}") from error


def shipped_tensors(name: str) -> "dict[str, Tensor]":
    """Return the tensors of the model of a problem, by name, those of the network as float32."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return {key: value.float() for key, value in load_file(BOX / f"{name}{ENDING}").items()}
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{BOX / name}{ENDING} is no model that can be read here: {error}") from None


def open_shipped(name: str) -> "PackagedModel":
    """Return the model of a problem that comes with the project."""
    from flows.steps.models.packaging import PackagedModel
    from lsm_core.experiments.plans import benchmark_from_plain
    from lsm_core.surrogates.predictor import Predictor, TrainedModel
    from lsm_core.surrogates.trust import Trust

    card, tensors = shipped_card(name), shipped_tensors(name)
    weights, trust = (_under(f"{part}.", tensors) for part in ("weights", "trust"))
    return PackagedModel(
        benchmark_from_plain(card["data"]),
        Predictor(TrainedModel.from_plain(card["trained_model"]), weights),
        card["facts"],
        trust=Trust.from_arrays({key: value.numpy() for key, value in trust.items()}),
    )


def shipped_example(name: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return a few inputs, and what the model made of them when it was put into its file."""
    tensors = shipped_tensors(name)
    given, made = (_under(f"{part}.", tensors) for part in ("given", "made"))
    return {k: v.numpy() for k, v in given.items()}, {k: v.numpy() for k, v in made.items()}


def unpack_shipped(source: str | None, root: "Location") -> str | None:
    """Return what a training starts from: a shipped model as the identity of a run in the store.

    `darcy@shipped` becomes a finished run of the store, under an identity of its own: its weights
    have been rounded. Any other source is returned as it is.
    """
    if source is None or not source.endswith(SHIPPED):
        return source
    name = source.removesuffix(SHIPPED).removeprefix("pde-")
    if name not in shipped_names():
        raise BadInput(
            f"no model of {name!r} comes with the project; there are {', '.join(shipped_names())}"
        )
    import hashlib
    from dataclasses import replace

    from safetensors.torch import save

    from flows.steps.results import keep_result
    from lsm_core.result import Result
    from storage.runs.checkpoints import Checkpoints

    digest = hashlib.sha256((BOX / f"{name}{ENDING}").read_bytes()).hexdigest()[:16]
    checkpoints = Checkpoints(root / "checkpoints" / digest)
    if checkpoints.result() is None:
        result = Result.from_plain(shipped_card(name)["result"])
        weights = _under("weights.", shipped_tensors(name))
        given, made = shipped_example(name)
        checkpoints.save_best(save({k: v.contiguous() for k, v in weights.items()}))
        made = {f"predicted:{key}": value for key, value in made.items()}
        checkpoints.write_arrays("showcase", {**given, **made})
        adopted = replace(
            result,
            identity=digest,
            study="train",
            setting="shipped",
            selection="best_validation",
            source=None,
        )
        keep_result(checkpoints, adopted)
    return digest


def _under(prefix: str, tensors: "dict[str, Tensor]") -> "dict[str, Tensor]":
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
