"""Trained models: of finished runs, and as MLflow model folders.

A folder runs where this project is not installed.
"""

import json
import logging
import shutil
import sys
import tempfile
import uuid
import warnings
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from flows.errors import BadInput
from flows.steps.results import result_in, stored_result
from flows.steps.training.sources import imported_packages, module_path, reachable
from flows.steps.training.workplace import selected_weights
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.plans import benchmark_from_plain
from lsm_core.names import ModelName
from lsm_core.problems.variable import Variable
from lsm_core.result import Result
from lsm_core.surrogates.operator import n_applications
from lsm_core.surrogates.predictor import Predictor, TrainedModel
from lsm_core.surrogates.trust import Trust
from storage.errors import translated
from storage.location import Location
from storage.runs.checkpoints import Checkpoints
from storage.tracking.model_state import ModelVersion

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from storage.tracking.registry import ModelRegistry

TRUST = "trust.npz"
"""The calibration of a model, where it has one."""
SERVED = "flows.steps.models.served"
ARTIFACTS = {"settings": "settings.json", "weights": "weights.safetensors"}
FACTS = (
    *("identity", "suite", "protocol", "preset", "benchmark", "model", "seed"),
    *("origin", "code", "selection", "test"),
)
"""What is told of a run with its model, beside its data."""
UNREADABLE = (
    *(OSError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError),
    *(RuntimeError, MemoryError, SafetensorError),
)
"""What damaged settings and weights lead to, in the core and in the readers of their formats."""


@dataclass(frozen=True)
class PackagedModel:
    """A model with what is known of it, on the sources of this project."""

    benchmark: Benchmark
    predictor: Predictor
    facts: dict[str, Any]
    """What identifies a model and what is known of its quality, as plain data."""
    trust: Trust | None = field(default=None, kw_only=True)
    """How far its predictions can be trusted; None as long as it is not calibrated."""


@dataclass(frozen=True)
class TrainedRun(PackagedModel):
    """The model of a finished run, with its result and one input for it."""

    result: Result
    example: dict[str, np.ndarray[Any, np.dtype[Any]]]


def trained_run(identity: str, root: Location) -> TrainedRun:
    """Return the model that a run has trained; BadInput if there is none."""
    checkpoints = Checkpoints(root / "checkpoints" / identity)
    result = result_in(checkpoints)
    if result is None:
        raise BadInput(
            f"there is no finished run {identity} in {root}; `lsm train` makes one, and every "
            "report names those there are"
        )

    def unusable(error: Exception) -> BadInput:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        return BadInput(f"the model of run {identity} cannot be rebuilt: {why}")

    with translated(KeyError, ValueError, TypeError, FileNotFoundError, into=unusable):
        experiment = Experiment.from_plain(result.settings)
        benchmark = experiment.benchmark
        model = TrainedModel(
            benchmark=benchmark.name,
            model_name=experiment.model_name,
            model=experiment.model,
            space=benchmark.space,
            n_steps=n_applications(experiment.model, benchmark),
            inputs=benchmark.with_role("input"),
            targets=benchmark.with_role("target"),
        )
        shown = checkpoints.arrays("showcase")
        return TrainedRun(
            benchmark=benchmark,
            predictor=Predictor(model, selected_weights(checkpoints)),
            facts=model_facts(result),
            result=result,
            example={v.name: shown[v.name][:1] for v in model.inputs},
            trust=kept_trust(checkpoints),
        )


def kept_trust(checkpoints: Checkpoints) -> Trust | None:
    """Return the calibration that is kept with a run, if there is one."""
    try:
        return Trust.from_arrays(checkpoints.arrays(TRUST.removesuffix(".npz")))
    except FileNotFoundError:
        return None


def model_facts(result: Result) -> dict[str, Any]:
    """Return what identifies the model of a run and what is known of its quality."""
    plain, data = result.to_plain(), result.settings["data"]
    return {
        **{name: plain[name] for name in FACTS},
        "n_train": data["split_sizes"]["train"],
        "n_test": data["split_sizes"]["test"],
        "added": data.get("added", []),
        "dataset": result.dataset.digest,
    }


def package(run: TrainedRun, folder: Path) -> Path:
    """Write a run's model as an MLflow model folder and return it; an older one is replaced.

    The folder has the weights as safetensors, the settings as JSON, a signature, an input
    example, the hash of the data, the sources that the model needs and their requirements.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    import_path = list(sys.path)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            code = _copy_sources(Path(scratch) / "code")
            pyfunc().save_model(
                partial,
                python_model=str(module_path(SERVED)),
                artifacts=_write_artifacts(run, Path(scratch)),
                code_paths=[str(code / "lsm_core")],
                signature=signature(run.predictor),
                input_example=run.example,
                pip_requirements=list(requirements()),
                metadata=run.facts,
            )
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        # MLflow tries the input example and leaves the copied sources on the import path.
        sys.path[:] = import_path
    return folder


def open_package(folder: Path) -> PackagedModel:
    """Return the model of a folder that `package` wrote, without running its code."""
    try:
        settings = json.loads((folder / "artifacts" / ARTIFACTS["settings"]).read_bytes())
        weights = load_file(folder / "artifacts" / ARTIFACTS["weights"])
        predictor = Predictor(TrainedModel.from_plain(settings["trained_model"]), weights)
        known = settings["facts"]
        if not all(isinstance(known[name], str) for name in ("identity", "model")):
            raise ValueError("its facts do not name a run and its model")
        return PackagedModel(
            benchmark_from_plain(settings["data"]), predictor, known, trust=_packaged_trust(folder)
        )
    except UNREADABLE as error:
        first = str(error).partition("\n")[0]
        raise BadInput(
            f"{folder} is no model folder that can be read here ({first}); `lsm registry` makes "
            "one of a finished run"
        ) from error


def _packaged_trust(folder: Path) -> Trust | None:
    kept = folder / "artifacts" / TRUST
    if not kept.is_file():
        return None  # made by a version that calibrated nothing, or without samples to do it by
    with np.load(kept, allow_pickle=False) as arrays:
        return Trust.from_arrays(dict(arrays))


def registered_model(registry: "ModelRegistry", version: ModelVersion) -> PackagedModel:
    """Return the model of a version: of its run, or MLflow's copy if another store has that."""
    if stored_result(registry.root, version.tags["identity"]) is not None:
        return trained_run(version.tags["identity"], registry.root)
    with tempfile.TemporaryDirectory() as scratch:
        return open_package(registry.download(version, Path(scratch)))


def signature(predictor: Predictor) -> "ModelSignature":
    """Return names and shapes of the variables, samples first; -1 stands for any size.

    The axes of space are free if the model can move to another grid.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    model = predictor.model
    is_free = predictor.supports({axis: 2 * size for axis, size in model.grid.items()})

    def spec(variable: Variable) -> TensorSpec:
        sizes = zip(variable.dims, variable.shape, strict=True)
        shape = (-1 if is_free and dim in model.space else size for dim, size in sizes)
        return TensorSpec(np.dtype(np.float32), (-1, *shape), variable.name)

    return ModelSignature(
        Schema([spec(variable) for variable in model.inputs]),
        Schema([spec(variable) for variable in model.targets]),
    )


@cache
def requirements() -> tuple[str, ...]:
    """Return the packages that a model folder's sources import, in the versions used here."""
    imported = imported_packages({SERVED, *_modules()})
    return tuple(sorted(map(_pinned, imported - set(sys.stdlib_module_names) - {"lsm_core"})))


def _pinned(package: str) -> str:
    try:
        installed = version(package)
    except PackageNotFoundError:
        # Asked second: it reads the metadata of everything that is installed.
        package = packages_distributions()[package][0]
        installed = version(package)
    # The part after "+" names a build, of which an index may have others.
    return f"{package}=={installed.partition('+')[0]}"


def _modules() -> set[str]:
    """Return the modules of the core that run inside a model folder, packages included."""
    # The catalogue finds models by their names, which no import tells.
    models = (f"lsm_core.models.{name}" for name in get_args(ModelName))
    with_packages = (
        accumulate(module.split("."), "{}.{}".format) for module in reachable((SERVED, *models))
    )
    return {name for names in with_packages for name in names if name.startswith("lsm_core")}


def _copy_sources(target: Path) -> Path:
    """Copy the modules of the core that a model needs, as the packages they are."""
    home = module_path("lsm_core").parent.parent
    for source in map(module_path, _modules()):
        place = target / source.relative_to(home)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    return target


def pyfunc() -> ModuleType:
    """Return MLflow's module, which warns of type hints of its own when it is first imported."""
    # It tells every step of writing a model; only what goes wrong is worth a line.
    logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return import_module("mlflow.pyfunc")


def _write_artifacts(run: TrainedRun, folder: Path) -> dict[str, str]:
    settings = {
        "trained_model": asdict(run.predictor.model),
        "data": run.result.settings["data"],
        "facts": run.facts,
    }
    places = {name: folder / file for name, file in ARTIFACTS.items()}
    places["settings"].write_text(json.dumps(settings, indent=1, sort_keys=True), encoding="utf-8")
    weights = {name: value.contiguous() for name, value in run.predictor.weights.items()}
    save_file(weights, places["weights"])
    if run.trust is not None:
        places["trust"] = folder / TRUST
        np.savez_compressed(places["trust"], allow_pickle=False, **run.trust.to_arrays())
    return {name: str(place) for name, place in places.items()}
