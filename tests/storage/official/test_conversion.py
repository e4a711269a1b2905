import dataclasses
import multiprocessing
import pickle
import signal
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import xarray as xr

from storage.datasets.reader import open_dataset
from storage.errors import PublishedFileInvalid, StoreUnavailable
from storage.location import Location
from storage.official.catalogue import PublishedBenchmark
from storage.official.conversion import (
    begin_conversion,
    convert_block,
    convert_published,
    plan_conversion,
)
from storage.official.download import download_published, raw_location
from storage.official.transfer import Patience
from tests.storage.official.small_files import (
    convert_in_small_blocks,
    expected_variables,
    raw_arrays,
    small_benchmark,
    write_official,
)
from tests.storage.official.unreliable_server import unreliable_server

AT_ONCE = Patience(first_wait=0.0)
FORMATS = {
    "burgers": ("7", "5", "7.3"),
    "darcy": ("5", "7", "7.3"),
    "navier_stokes": ("7.3", "5", "7"),
    "elasticity_p": ("npy",),
    "elasticity_g": ("npy",),
    "plasticity": ("7.3", "5", "7"),
    "airfoil": ("npy",),
    "pipe": ("npy",),
}
# Every benchmark in one format quickly, in the others among the slow tests.
CASES = [
    pytest.param(name, version, marks=[] if number == 0 else [pytest.mark.slow])
    for name, versions in FORMATS.items()
    for number, version in enumerate(versions)
]


def local(path: Path) -> Location:
    return Location.parse(str(path))


def brought(
    name: str, tmp_path: Path, version: str = "5", root: Location | None = None
) -> tuple[PublishedBenchmark, Location]:
    """Write small official files, once, and bring them into a store."""
    benchmark, root = small_benchmark(name), root or local(tmp_path / "store")
    if not (tmp_path / "mirror").exists():
        write_official(raw_arrays(name), tmp_path / "mirror", version)
    download_published(benchmark, root, [str(tmp_path / "mirror")])
    return benchmark, root


def files(location: Location) -> dict[str, bytes]:
    folder = location.local_path
    assert folder is not None
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(("name", "version"), CASES)
def test_files_from_an_unreliable_server_become_a_store_equal_to_the_source(
    name: str, version: str, tmp_path: Path
) -> None:
    raw, benchmark = raw_arrays(name), small_benchmark(name)
    write_official(raw, tmp_path / "mirror" / benchmark.folder, version)
    root = local(tmp_path / "store")
    with unreliable_server(tmp_path / "mirror") as server:
        for file in benchmark.files:
            path = f"{benchmark.folder}/{file.path}"
            server.faults[path] = ["page", "cut", "busy", "cut", "ignore range, cut"]
        download_published(benchmark, root, [server.url], patience=AT_ONCE)
        assert all(not faults for faults in server.faults.values())
        assert {request.status for request in server.requests} >= {200, 206, 503}
    stored = open_dataset(convert_published(benchmark, root)).to_xarray()
    samples = np.concatenate(
        [np.array(benchmark.splits["release"][p]) for p in ("train", "validation", "test")]
    )
    expected = expected_variables(name, raw, benchmark.stride)
    assert set(expected) == {variable.name for variable in benchmark.variables}
    for variable, values in expected.items():
        np.testing.assert_array_equal(stored[variable], values[samples].astype(np.float32))
    assert stored["split"].values.tolist() == [0] * 14 + [1] * 3 + [2] * 8


def test_the_stride_keeps_the_points_of_the_published_protocol(tmp_path: Path) -> None:
    benchmark, root = brought("darcy", tmp_path)
    stored = open_dataset(convert_published(benchmark, root, stride=4)).to_xarray()
    sol = raw_arrays("darcy")["piececonst_r421_N1024_smooth1.mat"]["sol"]
    np.testing.assert_array_equal(stored["pressure"][:14], sol[:14, ::4, ::4].astype(np.float32))
    np.testing.assert_allclose(stored["x"], (np.arange(0, 21, 4) + 0.5) / 21, rtol=1e-15)
    assert stored.attrs["positions"] == "cell centres"


@pytest.mark.parametrize(
    ("name", "stride", "message"),
    [
        ("burgers", 3, "must divide 16"),
        ("burgers", 0, "from 1 to 15, got 0"),
        ("darcy", 21, "from 1 to 20, got 21"),
        ("elasticity_p", 2, "takes no stride"),
    ],
)
def test_a_stride_that_makes_no_grid_is_refused(
    name: str, stride: int, message: str, tmp_path: Path
) -> None:
    benchmark, root = brought(name, tmp_path)
    with pytest.raises(ValueError, match=message):
        convert_published(benchmark, root, stride=stride)


def test_the_split_of_the_paper_lies_beside_that_of_the_released_code(tmp_path: Path) -> None:
    benchmark, root = brought("airfoil", tmp_path)
    release, paper = (
        open_dataset(convert_published(benchmark, root, split_rule=rule))
        for rule in ("release", "paper")
    )
    assert release.location != paper.location
    assert (release.attributes["split_sizes"]["test"], paper.attributes["split_sizes"]["test"]) == (
        8,
        4,
    )
    np.testing.assert_array_equal(
        paper.part("test", ["mach"])[:]["mach"], release.part("test", ["mach"])[:4]["mach"]
    )


def test_the_store_says_where_the_values_come_from(tmp_path: Path) -> None:
    benchmark, root = brought("pipe", tmp_path)
    dataset = open_dataset(convert_published(benchmark, root))
    provenance = dataset.provenance
    assert (provenance["kind"], provenance["stride"]) == ("published", 1)
    assert provenance["split"] == {"train": [0, 14], "validation": [15, 18], "test": [22, 30]}
    assert set(provenance["files"]) == {"Pipe_X.npy", "Pipe_Y.npy", "Pipe_Q.npy"}
    assert len(provenance["files"]["Pipe_Q.npy"]["sha256"]) == 64
    assert dataset.attributes["environment"]["urls"]["Pipe_X.npy"].endswith("mirror/Pipe_X.npy")
    assert dataset.to_xarray()["pressure"].attrs["role"] == "parameter"


def test_xarray_opens_a_converted_dataset_without_a_warning(tmp_path: Path) -> None:
    benchmark, root = brought("pipe", tmp_path)
    stored = xr.open_zarr(convert_published(benchmark, root).url)  # a warning is an error here
    assert {variable.name for variable in benchmark.variables} < set(stored)


def test_a_second_conversion_touches_nothing(tmp_path: Path) -> None:
    benchmark, root = brought("burgers", tmp_path)
    location = convert_published(benchmark, root)
    assert location.local_path is not None
    times = {path: path.stat().st_mtime_ns for path in location.local_path.rglob("*")}
    # Not even the files are needed any more.
    raw_location(benchmark, benchmark.files[0], root).remove()
    assert convert_published(benchmark, root) == location
    assert {path: path.stat().st_mtime_ns for path in location.local_path.rglob("*")} == times


def test_blocks_of_any_process_in_any_order_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.official.conversion.MOST_SAMPLES_PER_BLOCK", 4)
    benchmark, root = brought("darcy", tmp_path)
    straight = files(convert_published(benchmark, root))
    _, other = brought("darcy", tmp_path, root=local(tmp_path / "other"))
    conversion = pickle.loads(pickle.dumps(plan_conversion(benchmark, other)))
    missing = begin_conversion(conversion)
    assert len(missing) == 7
    for index in (5, 1, 6, 0):
        convert_block(conversion, index)
    assert begin_conversion(conversion) == [2, 3, 4]
    for index in (4, 3, 2):
        convert_block(conversion, index)
    conversion.finish()
    assert files(conversion.location) == straight
    assert not conversion.scratch.exists()


@pytest.mark.parametrize("name", ["elasticity_p", "plasticity"])
def test_blocks_are_the_same_without_the_scratch_files(name: str, tmp_path: Path) -> None:
    benchmark, root = brought(name, tmp_path)
    conversion = plan_conversion(benchmark, root)
    begin_conversion(conversion)
    turned = conversion.samples().read(range(12, 20))
    local(conversion.scratch).remove()
    for variable, values in conversion.samples().read(range(12, 20)).items():
        np.testing.assert_array_equal(values, turned[variable])


def test_a_store_in_memory_holds_files_and_datasets_too(tmp_path: Path) -> None:
    root = Location.parse(f"memory://{uuid4().hex}")
    benchmark, root = brought("burgers", tmp_path, root=root)
    _, folder = brought("burgers", tmp_path)
    remote, near = (open_dataset(convert_published(benchmark, each)) for each in (root, folder))
    assert remote.digest == near.digest


def test_progress_reaches_the_number_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.official.conversion.MOST_SAMPLES_PER_BLOCK", 8)
    benchmark, root = brought("elasticity_g", tmp_path)
    reports, lock = [], threading.Lock()

    def report(name: str, done: int, total: int, note: str) -> None:
        with lock:
            reports.append((name, done, total, note))

    convert_published(benchmark, root, report=report)
    blocks = [(done, total) for _, done, total, note in reports if note == "blocks"]
    assert blocks == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert ("Interp/Random_UnitCell_mask_10_interp.npy", 1, 1, "turned") in reports


def test_files_that_were_never_downloaded_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(PublishedFileInvalid, match=r"Pipe_X\.npy was not downloaded"):
        convert_published(small_benchmark("pipe"), local(tmp_path))


def test_a_file_that_changed_since_its_download_is_refused(tmp_path: Path) -> None:
    benchmark, root = brought("pipe", tmp_path)
    path = raw_location(benchmark, benchmark.files[2], root).local_path
    assert path is not None
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(PublishedFileInvalid, match=r"Pipe_Q\.npy has sha256 .* as downloaded"):
        convert_published(benchmark, root)


@pytest.mark.parametrize(("name", "version"), [("pipe", "npy"), ("navier_stokes", "5")])
def test_a_value_that_is_no_number_is_named_with_its_sample(
    name: str, version: str, tmp_path: Path
) -> None:
    raw = raw_arrays(name)
    file, variable = ("Pipe_Q.npy", "") if name == "pipe" else (next(iter(raw)), "u")
    raw[file][variable][23, 1, 2, 3] = np.nan
    write_official(raw, tmp_path / "mirror", version)
    benchmark, root = small_benchmark(name), local(tmp_path / "store")
    download_published(benchmark, root, [str(tmp_path / "mirror")])
    sentence = rf"{file} has 1 values of NaN or infinity in sample 23, expected finite numbers"
    with pytest.raises(PublishedFileInvalid, match=sentence):
        convert_published(benchmark, root)


def test_a_value_beyond_single_precision_is_found(tmp_path: Path) -> None:
    raw = raw_arrays("pipe")
    raw["Pipe_X.npy"][""][3, 0, 0] = 1e39
    write_official(raw, tmp_path / "mirror")
    benchmark, root = small_benchmark("pipe"), local(tmp_path / "store")
    download_published(benchmark, root, [str(tmp_path / "mirror")])
    with pytest.raises(PublishedFileInvalid, match="infinity in sample 3"):
        convert_published(benchmark, root)


@pytest.mark.parametrize(
    ("free", "message"),
    [([100], r"Burgers needs 0\.00 GB"), ([400, 200], r"turning .*-a\.npy needs 0\.00 GB")],
)
def test_a_disk_that_is_too_small_is_said_before(
    free: list[int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 25 samples of two variables with two points take 400 bytes; turning one, of which a run of 30
    # samples is used, takes 240.
    benchmark, root = brought("burgers", tmp_path)
    usages = map(dataclasses.make_dataclass("Usage", ["free"]), free)
    monkeypatch.setattr("storage.location.shutil.disk_usage", lambda _: next(usages))
    with pytest.raises(StoreUnavailable, match=message):
        convert_published(benchmark, root)


@pytest.mark.slow
def test_a_conversion_killed_at_any_moment_ends_with_the_same_bytes(tmp_path: Path) -> None:
    name = "navier_stokes"
    _, root = brought(name, tmp_path, "7")
    assert root.local_path is not None
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.storage.official.small_files"])

    def start() -> BaseProcess:
        process = processes.Process(target=convert_in_small_blocks, args=(name, root.url))
        process.start()
        return process

    def whole() -> dict[str, bytes]:
        process = start()
        process.join()
        assert process.exitcode == 0
        found = files(root / "datasets")
        assert not (root / "scratch").names()
        (root / "datasets").remove()
        return found

    straight = whole()
    started = time.perf_counter()
    assert whole() == straight
    seconds = time.perf_counter() - started
    random = np.random.default_rng(0)
    n_killed = 0
    while n_killed < 20:
        process = start()
        time.sleep(random.uniform(0, seconds))
        process.kill()
        process.join()
        n_killed += process.exitcode == -signal.SIGKILL
        assert whole() == straight
