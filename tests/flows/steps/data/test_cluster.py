"""Work on a real Dask cluster whose workers and scheduler are killed."""

import importlib
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from flows.errors import BadInput, ProcessDied
from flows.steps.data import official
from flows.steps.data.compute import map_unordered
from flows.steps.data.official import fetch_and_convert
from storage.errors import PublishedFileInvalid, StoreUnavailable
from storage.location import Location
from storage.official import conversion
from storage.official.catalogue import published_benchmarks
from storage.official.conversion import begin_conversion, convert_block_elsewhere, plan_conversion
from storage.official.download import Report, no_report
from tests.faults.kills import DaskCluster, dask_cluster
from tests.storage.official.small_files import raw_arrays, small_benchmark, write_official
from tests.storage.official.test_conversion import brought, files
from tests.storage.s3_servers import in_use, rclone_server

NAME = "navier_stokes"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Provide compressed MATLAB files, which need turning, and small blocks to convert them in."""
    monkeypatch.setitem(published_benchmarks(), NAME, small_benchmark(NAME))  # type: ignore[index]
    monkeypatch.setattr(conversion, "MOST_SAMPLES_PER_BLOCK", 2)
    write_official(raw_arrays(NAME), tmp_path / "mirror", "7")
    return str(tmp_path / "mirror")


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    with dask_cluster() as started:
        yield started


def convert(
    root: Location, mirror: str, address: str | None, report: Report = no_report
) -> Location:
    return fetch_and_convert(NAME, root, [mirror], None, report, 2, address)


def local(path: Path) -> Location:
    return Location.parse(str(path))


def test_a_conversion_on_two_workers_of_which_one_is_killed_has_the_bytes_of_a_local_one(
    cluster: DaskCluster, mirror: str, tmp_path: Path
) -> None:
    here = convert(local(tmp_path / "here"), mirror, None)
    victim = cluster.start_worker()
    cluster.wait_for(2)
    blocks = []

    def report(name: str, done: int, total: int, note: str) -> None:
        if note == "blocks":
            blocks.append((done, total))
            # It stops with blocks in hand, which are nobody else's until it is gone. That must not
            # wait for another block: the next may be one that is done and that only it has.
            if done == 2:
                victim.send_signal(signal.SIGSTOP)
                threading.Timer(0.5, victim.kill).start()

    root = local(tmp_path / "there")
    there = convert(root, mirror, cluster.address, report)
    assert victim.wait(60) == -signal.SIGKILL
    assert blocks == [(done, 13) for done in range(14)]
    assert there.name == here.name
    assert files(root / "datasets") == files(local(tmp_path / "here") / "datasets")
    assert (root / "scratch").names() == []
    # What is complete is left alone, whoever asks.
    assert convert(root, mirror, "tcp://127.0.0.1:1") == there


@pytest.mark.slow
def test_workers_bring_files_of_an_object_store_to_their_own_machine_and_leave_nothing(
    mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = convert(local(tmp_path / "here"), mirror, None)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with rclone_server(tmp_path / "buckets") as server, in_use(server.environment):
        root = server.new_root()
        monkeypatch.setenv("TMPDIR", str(theirs))
        with dask_cluster() as cluster:
            cluster.start_worker()
            cluster.wait_for(2)
            seen: set[str] = set()

            def report(name: str, done: int, total: int, note: str) -> None:
                seen.update(path.name for path in theirs.glob("lsm-scratch-*/*"))

            there = convert(root, mirror, cluster.address, report)
        assert {"ready", "NavierStokes_V1e-5_N1200_T20.mat-u.npy"} <= seen
        assert not list(theirs.glob("lsm-scratch-*"))
        for name, content in files(here).items():
            assert (there / name).read_bytes() == content


def test_a_store_that_workers_do_not_see_is_said_in_one_sentence(
    cluster: DaskCluster, mirror: str
) -> None:
    root = Location.parse(f"memory://{uuid4().hex}")
    with pytest.raises(StoreUnavailable, match=r"does not see memory://.*; use a store that all"):
        convert(root, mirror, cluster.address)


def test_a_folder_that_is_not_on_the_worker_is_said_in_one_sentence(tmp_path: Path) -> None:
    benchmark, root = brought("pipe", tmp_path)
    planned = plan_conversion(benchmark, root)
    (index,) = begin_conversion(planned, elsewhere=True)
    sent = pickle.dumps(planned)
    shutil.move(tmp_path / "store", tmp_path / "another-machine")
    with pytest.raises(StoreUnavailable, match=r"worker on .* does not see .*pipe.*LSM_STORE"):
        convert_block_elsewhere(pickle.loads(sent), index)
    assert not (tmp_path / "store").exists()


def test_blocks_that_workers_wrote_into_a_folder_of_their_own_are_missed(
    mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "map_unordered", lambda *_, **__: iter(range(13)))
    with pytest.raises(StoreUnavailable, match=r"13 blocks of .*, but 13 are not there"):
        convert(local(tmp_path / "store"), mirror, "tcp://127.0.0.1:1")


def test_a_damaged_copy_of_a_file_is_refused_and_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = Location.parse(f"memory://{uuid4().hex}")
    benchmark, root = brought("pipe", tmp_path, root=root)
    planned = plan_conversion(benchmark, root)
    (index,) = begin_conversion(planned, elsewhere=True)
    assert not planned.scratch.exists()
    planned.scratch.mkdir()
    (planned.scratch / "Pipe_X.npy").write_bytes(b"cut off")
    with pytest.raises(PublishedFileInvalid, match=r"Pipe_X\.npy has sha256"):
        convert_block_elsewhere(planned, index)
    assert convert_block_elsewhere(planned, index) == index
    conversion.require_converted(planned, [index])
    planned.finish()
    assert not planned.scratch.exists()


def kill_on(cluster: DaskCluster, process: int) -> None:
    """Let a worker kill a process of its cluster."""
    work = [(process, signal.SIGKILL)]
    list(map_unordered(os.kill, work, n_workers=1, dask_address=cluster.address))


@pytest.mark.slow
def test_work_that_kills_every_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    with dask_cluster() as cluster:
        worker = cluster.started[1].pid
        with pytest.raises(ProcessDied, match=r"^1 Dask workers died of the same kill, .* kept"):
            kill_on(cluster, worker)


@pytest.mark.slow
def test_a_cluster_without_this_program_is_told(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "known_only_here.py").write_text("def double(n):\n    return 2 * n\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("known_only_here").double
    with pytest.raises(BadInput, match=r"cannot load double \(No module .*; install the same"):
        list(map_unordered(double, [(1,)], n_workers=1, dask_address=cluster.address))


@pytest.mark.slow
def test_a_scheduler_that_is_lost_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with dask_cluster() as cluster:
        scheduler = cluster.started[0].pid
        with pytest.raises(
            ProcessDied, match=r"scheduler at tcp://.* was lost during kill; .* kept"
        ):
            kill_on(cluster, scheduler)
    assert "Traceback" not in capfd.readouterr().err
