"""Every reader of files: how whole ones are made and read, and what damaged ones may raise."""

import json
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from safetensors.numpy import save

from storage.datasets.reader import open_dataset
from storage.errors import StorageError
from storage.fields.files import (
    open_arrays,
    read_fields,
    said_numbers,
    variable_names,
    write_fields,
)
from storage.location import Location
from storage.official.download import FileRecord, read_record
from storage.official.files import as_dask, open_array
from storage.runs.checkpoints import Checkpoints
from storage.runs.leases import Leases
from storage.tracking.model_record import ModelRecord
from storage.tracking.model_state import Change
from tests.storage.damaged_json import changed_values
from tests.storage.datasets.small import job, small_schema, write_whole
from tests.storage.official.small_files import small_benchmark, write_mat73


@dataclass(frozen=True)
class Reader:
    """How whole files are made, how they are read, and what may be said of damaged ones."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    n_inputs: int
    own_errors: Callable[[], tuple[type[Exception], ...]] = lambda: (StorageError,)
    damage: Callable[[bytes, random.Random], bytes] | None = None
    """How a file is damaged; bit by bit if nothing is said."""
    victims: str = "*"
    """Which files are damaged, by the ends of their names."""


def make_mat5(folder: Path) -> None:
    from scipy.io import savemat

    savemat(folder / "file", _arrays(), do_compression=False)


def make_mat7(folder: Path) -> None:
    from scipy.io import savemat

    savemat(folder / "file", _arrays(), do_compression=True)


def make_mat73(folder: Path) -> None:
    write_mat73(folder / "file", _arrays())


def make_npy(folder: Path) -> None:
    with (folder / "file").open("wb") as file:
        np.save(file, _arrays()["u"])


def _arrays() -> dict[str, np.ndarray]:
    values = np.random.default_rng(0).standard_normal((6, 5, 4))
    return {"t": np.arange(5.0), "u": values, "name": np.array([[1, 2, 3]], dtype=np.int16)}


def read_mat(folder: Path) -> Any:
    array = open_array(folder / "file", "u")
    lazy = as_dask(array)
    return np.asarray(array[:2]), lazy[:2].compute(scheduler="synchronous")


def read_npy(folder: Path) -> Any:
    array = open_array(folder / "file")
    return np.asarray(array[:2]), as_dask(array)[:2].compute(scheduler="synchronous")


def make_dataset(folder: Path) -> None:
    write_whole(Location.parse(str(folder / "d.zarr")), small_schema())


def read_dataset(folder: Path) -> Any:
    dataset = open_dataset(Location.parse(str(folder / "d.zarr")))
    part = dataset.part("train", ["before", "after"])
    return part[:], part[0], dataset.digest, dataset.provenance


def make_checkpoints(folder: Path) -> None:
    checkpoints = Checkpoints(Location.parse(str(folder / "run")))
    state = save({"model.w": np.arange(6.0)}, {"state": json.dumps({"epoch": 1})})
    for step in (1, 2):
        checkpoints.save(step, state)
    checkpoints.save_best(save({"w": np.arange(6.0)}))
    checkpoints.write_result({"test": {"rel_l2": 0.1}, "epochs": 4})
    checkpoints.write_arrays("showcase", {"u": np.arange(60.0).reshape(3, 20)})
    spool = job(Location.parse(str(folder / "spool")), small_schema())
    spool.keep_sample(0, {"u": np.arange(60.0), "seed": np.int64(3)})


def read_checkpoints(folder: Path) -> Any:
    checkpoints = Checkpoints(Location.parse(str(folder / "run")))
    spooled = job(Location.parse(str(folder / "spool")), small_schema()).kept_sample(0)
    state = checkpoints.latest()
    assert state is not None
    assert len(state) > 100, "a damaged checkpoint was taken for a whole one"
    return spooled, checkpoints.result(), checkpoints.best(), checkpoints.arrays("showcase")


def make_weights(folder: Path) -> None:
    plain = {"epoch": 1, "notes": {}, "groups": []}
    content = save({"model.w": np.arange(60.0)}, {"state": json.dumps(plain)})
    (folder / "file").write_bytes(content)


def read_weights(folder: Path) -> Any:
    from lsm_core.training.state import model_weights

    return model_weights((folder / "file").read_bytes())


def make_model_record(folder: Path) -> None:
    record = ModelRecord(Location.parse(str(folder)))
    record.add("pde-darcy", {"identity": "a", "test/rel_l2": "0.1"})
    record.note("pde-darcy", Change(aliases={"champion": 1}, tags={"a": "b"}, reason="first"))


def read_model_record(folder: Path) -> Any:
    return ModelRecord(Location.parse(str(folder))).state("pde-darcy")


def make_record(folder: Path) -> None:
    benchmark = small_benchmark("burgers")
    (file,) = benchmark.files
    lock = folder / "raw" / "lock" / benchmark.folder / f"{file.path}.json"
    lock.parent.mkdir(parents=True)
    record = FileRecord(sha256="0" * 64, n_bytes=10, url="https://example.org/a.mat")
    lock.write_text(json.dumps(vars(record)))


def read_a_record(folder: Path) -> Any:
    benchmark = small_benchmark("burgers")
    record = read_record(benchmark, benchmark.files[0], Location.parse(str(folder)))
    return record and (record.sha256.upper(), record.n_bytes + 1, record.url.upper())


def make_parameters(folder: Path) -> None:
    whole = {
        "benchmarks": ["burgers", "darcy"],
        "models": ["lsm"],
        "preset": "smoke",
        "seeds": [0, 1],
        "training": {"epochs": 3, "learning_rate": 0.001, "fraction": 0.5},
        "source": None,
        "ranks": 1,
    }
    (folder / "file").write_text(json.dumps(whole))


def read_parameters(folder: Path) -> Any:
    """Take JSON as `prefect deployment run` does, up to where training would begin."""
    from flows.errors import BadInput
    from flows.steps.training.cells import chosen_cell
    from flows.train import train

    try:
        given = json.loads((folder / "file").read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInput("not JSON") from error
    if not isinstance(given, dict):
        raise BadInput("not a mapping")
    taken = train.validate_parameters(given)
    return chosen_cell(
        taken.get("preset", "quick"),
        *(taken["benchmarks"] or ["burgers"])[:1],
        *(taken["models"] or ["lsm"])[:1],
        (taken.get("seeds") or [0])[0],
        source=taken.get("source"),
        training=taken.get("training"),
        frozen=taken.get("frozen") or [],
    ).identity


def make_flow_parameters(folder: Path) -> None:
    names = {"benchmarks": ["burgers", "darcy"], "preset": "smoke"}
    training = {"epochs": 3, "learning_rate": 0.001, "fraction": 0.5}
    whole = {
        "lsm": {**names, "models": ["lsm", "fno"], "seeds": [0, 1]},
        "prepare": {**names, "resolutions": [64], "official": False, "mirrors": [], "stride": 2},
        "train": {
            **names,
            **{"models": ["lsm"], "seeds": [0], "threads": 1, "ranks": 1},
            **{"source": "darcy", "training": training, "frozen": ["lift"]},
        },
        "retrain": {
            **{"benchmark": "darcy", "n_new": 64, "watched": None},
            **{"false_promotions": 0.1, "least_gain": 0.01},
        },
    }
    for name, values in whole.items():
        (folder / f"{name}.json").write_text(json.dumps(values))


def read_flow_parameters(folder: Path) -> Any:
    """Take JSON as Prefect does, first by the schema at submission, then by the flow's types."""
    from prefect.utilities.schema_tools.validation import validate

    from flows.benchmark import lsm
    from flows.errors import BadInput
    from flows.prepare import prepare
    from flows.retrain import retrain
    from flows.train import train

    taken = []
    for flow in (lsm, prepare, train, retrain):
        try:
            given = json.loads((folder / f"{flow.name}.json").read_bytes())
        except (ValueError, RecursionError) as error:
            raise BadInput("not JSON") from error
        if not isinstance(given, dict):
            raise BadInput("not a mapping")
        validate(given, flow.parameters.model_dump(), raise_on_error=True)
        taken.append(flow.validate_parameters(given))
    try:
        return _settings_of(*taken)
    except ValueError as error:
        place = traceback.extract_tb(error.__traceback__)[-1].filename
        if "/lsm_core/" in place:  # the core says in a sentence what it refuses
            raise BadInput(str(error)) from error
        raise


def _settings_of(*taken: dict[str, Any]) -> Any:
    """Make what flows make of their parameters before the work begins."""
    from flows.steps.training.cells import benchmark_cells, chosen_cell
    from lsm_core.evaluation.promotion import PromotionRule
    from lsm_core.experiments.protocols import variants

    whole, data, one, again = taken
    # A few of each: a hundred seeds on every benchmark are many cells, rightly.
    cells = benchmark_cells(
        whole.get("preset", "quick"),
        (whole.get("benchmarks") or ["darcy"])[:2],
        (whole.get("models") or ["lsm"])[:2],
        (whole.get("seeds") or [0])[:2],
    )
    plans = variants(
        data.get("preset", "quick"),
        (data.get("benchmarks") or ["darcy"])[:2],
        (data.get("resolutions") or [])[:2],
    )
    cell = chosen_cell(
        one.get("preset", "quick"),
        *(one["benchmarks"] or ["burgers"])[:1],
        *(one["models"] or ["lsm"])[:1],
        (one.get("seeds") or [0])[0],
        training=one.get("training"),
    )
    rule = PromotionRule(least_gain=again.get("least_gain", 0.01))
    return [each.identity for each in [*cells, cell]], plans, rule


def make_fields(name: str) -> Callable[[Path], None]:
    """Return what writes a file of fields of some kind."""

    def make(folder: Path) -> None:
        values = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
        pressure = (("sample", "x", "y"), values, {"units": "Pa", "long_name": ""})
        places = {"x": np.linspace(0, 1, 4), "y": np.linspace(0, 2, 5)}
        write_fields(folder / name, xr.Dataset({"pressure": pressure}, coords=places))

    return make


def make_netcdf4(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "f.nc", "w") as file:
        file["pressure"] = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
        file["pressure"].attrs["scale_factor"] = np.array([0.5])
        file["pressure"].attrs["_FillValue"] = np.array([-99], dtype=np.int16)
        file["x"] = np.linspace(0, 1, 4)


def read_a_field_file(folder: Path) -> Any:
    (path,) = folder.glob("f.*")
    said = said_numbers(path, ["pressure", "x", "model"])
    return said, variable_names(path), read_fields(path, ["pressure", "x"])


def make_pt(folder: Path) -> None:
    import torch

    values = torch.arange(60.0).view(3, 4, 5)
    torch.save(
        {"x": values, "y": values[:, 0].T, "inside": {"n": torch.arange(3)}}, folder / "f.pt"
    )


def make_csv(folder: Path) -> None:
    rows = [f"{n / 7},{n / 3},{n}" for n in range(20)]
    (folder / "f.csv").write_text("\n".join(["x,y,p [Pa]", *rows]))


def make_comsol(folder: Path) -> None:
    names = "% Model:  a.mph\n% x  y  u (m/s) @ t=0  u (m/s) @ t=1"
    rows = [f"{n / 7} {n / 3} {n} {2 * n}" for n in range(20)]
    (folder / "f.txt").write_text("\n".join([names, *rows]))


def make_hdf5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "f.h5", "w") as file:
        file["inside/u"] = np.arange(60.0).reshape(3, 4, 5)
        file["inside/u"].attrs["units"] = "Pa"


def read_own_file(folder: Path) -> Any:
    (path,) = folder.glob("f.*")
    return {name: np.asarray(array[...]) for name, array in open_arrays(path).items()}


def make_package(folder: Path) -> None:
    from flows.steps.models.packaging import _write_artifacts, trained_run
    from tests.flows.steps.trained_runs import cell, write_run

    root = Location.parse(str(folder.parent / "store"))
    made = cell("burgers")
    write_run(made, root)
    (folder / "artifacts").mkdir()
    _write_artifacts(trained_run(made.identity, root), folder / "artifacts")


def read_package(folder: Path) -> Any:
    from flows.steps.models.packaging import open_package

    found = open_package(folder)
    named = found.facts["identity"].upper(), found.facts["model"].upper(), dict(found.facts)
    return found.benchmark.name, found.predictor.model.grid, named


def _package_errors() -> tuple[type[Exception], ...]:
    from flows.errors import BadInput

    return (BadInput,)


def make_leases(folder: Path) -> None:
    lease = Leases(Location.parse(str(folder))).acquire("cell")
    assert lease is not None
    content = lease.mark.read_bytes()
    lease.release()
    (folder / f"cell.{'0' * 32}.claim").write_bytes(content)


def read_leases(folder: Path) -> Any:
    """Acquire a lease beside a mark; that of the process which made it is of a living one."""
    leases = Leases(Location.parse(str(folder)))
    with leases.hold("other"):
        lease = leases.acquire("cell")
    if lease is not None:
        lease.release()
    return lease


def _parameter_errors() -> tuple[type[Exception], ...]:
    from prefect.exceptions import ParameterBindError, ParameterTypeError, SignatureMismatchError
    from prefect.utilities.schema_tools.validation import ValidationError

    from flows.errors import BadInput

    own = (BadInput, ParameterTypeError, ParameterBindError, SignatureMismatchError)
    return (*own, ValidationError)


READERS = {
    "mat 5": Reader(make_mat5, read_mat, 2500),
    "mat 7": Reader(make_mat7, read_mat, 1500),
    "mat 7.3": Reader(make_mat73, read_mat, 2000),
    "npy": Reader(make_npy, read_npy, 1500),
    "dataset": Reader(make_dataset, read_dataset, 1200),
    "checkpoints": Reader(make_checkpoints, read_checkpoints, 1000),
    "model record": Reader(make_model_record, read_model_record, 500),
    "model record values": Reader(make_model_record, read_model_record, 500, damage=changed_values),
    "record": Reader(make_record, read_a_record, 500),
    "weights": Reader(make_weights, read_weights, 500, lambda: (ValueError,)),
    "parameters": Reader(make_parameters, read_parameters, 800, _parameter_errors),
    "parameter values": Reader(
        make_flow_parameters, read_flow_parameters, 1500, _parameter_errors, changed_values
    ),
    "dataset metadata": Reader(
        make_dataset, read_dataset, 1500, damage=changed_values, victims="zarr.json"
    ),
    "fields npz": Reader(make_fields("f.npz"), read_a_field_file, 800),
    "fields NetCDF 3": Reader(make_fields("f.nc"), read_a_field_file, 800),
    "fields NetCDF 4": Reader(make_netcdf4, read_a_field_file, 800),
    "fields mat": Reader(make_fields("f.mat"), read_a_field_file, 800),
    "fields zarr": Reader(make_fields("f.zarr"), read_a_field_file, 800),
    "fields zarr metadata": Reader(
        make_fields("f.zarr"), read_a_field_file, 800, damage=changed_values, victims="zarr.json"
    ),
    "own pt": Reader(make_pt, read_own_file, 2500),
    "own csv": Reader(make_csv, read_own_file, 2500),
    "own comsol": Reader(make_comsol, read_own_file, 2500),
    "own hdf5": Reader(make_hdf5, read_own_file, 2500),
    "package": Reader(make_package, read_package, 500, _package_errors),
    "package settings": Reader(
        make_package, read_package, 1000, _package_errors, changed_values, "settings.json"
    ),
    "leases": Reader(make_leases, read_leases, 500),
    "lease values": Reader(make_leases, read_leases, 500, damage=changed_values),
}
MAY_READ_ALL = ("leases", "lease values")
"""What cannot be read there is kept, or taken for a stranger's, and not refused."""
