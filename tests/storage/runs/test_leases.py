"""Leases on work in a shared store: one holder at a time, and none that is dead."""

import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from storage.errors import StoreInterrupted
from storage.location import Location
from storage.runs import leases as module
from storage.runs.leases import Lease, Leases
from tests.storage.s3_servers import in_use, moto_server, rclone_server

KINDS = ["folder", "memory", "rclone", "moto"]


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    with ExitStack() as stack:
        if request.param == "folder":
            yield Location.parse(str(tmp_path / "claims"))
        elif request.param == "memory":
            yield Location.parse(f"memory://{uuid4().hex}")
        else:
            start = {"rclone": rclone_server, "moto": moto_server}[request.param]
            server = stack.enter_context(start(tmp_path / "buckets"))
            stack.enter_context(in_use(server.environment))
            yield server.new_root() / "claims"


def test_what_one_holds_another_does_not_get_until_it_is_released(folder: Location) -> None:
    ours, theirs = Leases(folder), Leases(folder)
    lease = ours.acquire("cell")
    assert lease is not None
    assert theirs.acquire("cell") is None
    assert ours.acquire("cell") is None
    other = theirs.acquire("cell.2")
    assert other is not None
    lease.release()
    again = theirs.acquire("cell")
    assert again is not None
    again.release()
    other.release()
    assert folder.names() == []


def test_many_that_want_the_same_never_have_it_together(folder: Location) -> None:
    inside, most, turns = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most, turns
        for _ in range(3):
            with Leases(folder).hold("cell"):
                with guard:
                    inside, most = inside + 1, max(most, inside + 1)
                time.sleep(0.01)
                with guard:
                    inside, turns = inside - 1, turns + 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (most, turns) == (1, 12)


def test_of_many_that_see_each_other_one_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folder, n_rivals = Location.parse(f"memory://{uuid4().hex}"), 4
    write, together = Location.write_bytes, threading.Barrier(n_rivals)

    def all_at_once(self: Location, content: bytes) -> None:
        together.wait(60)  # all have looked and seen nobody
        write(self, content)
        together.wait(60)  # all will see all

    monkeypatch.setattr(Location, "write_bytes", all_at_once)
    with ThreadPoolExecutor(n_rivals) as rivals:
        asked = [rivals.submit(Leases(folder).acquire, "cell") for _ in range(n_rivals)]
        (lease,) = [found for each in asked if (found := each.result()) is not None]
    assert folder.names() == [lease.mark.name]
    lease.release()


@pytest.fixture
def local(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "claims"))


def hold(url: str, has_it: Event) -> None:
    lease = Leases(Location(url)).acquire("cell")
    assert lease is not None
    has_it.set()
    time.sleep(600)


def test_a_killed_process_of_this_machine_holds_nothing(local: Location) -> None:
    context = multiprocessing.get_context("spawn")
    has_it = context.Event()
    holder = context.Process(target=hold, args=(local.url, has_it))
    holder.start()
    assert has_it.wait(60)
    ours = Leases(local)
    assert ours.acquire("cell") is None
    holder.kill()
    holder.join()
    lease = ours.acquire("cell")
    assert lease is not None
    lease.release()


def elsewhere(lease: Lease) -> None:
    """Make a lease look like one of another machine."""
    content = json.loads(lease.mark.read_bytes())
    lease.mark.write_bytes(json.dumps({**content, "machine": "another"}).encode())


def test_a_holder_elsewhere_is_dead_when_it_sends_no_heartbeat(local: Location) -> None:
    silent = Leases(local, heartbeat=3600).acquire("cell")
    assert silent is not None
    elsewhere(silent)
    ours = Leases(local, expiry=0.3)
    assert ours.acquire("cell") is None
    time.sleep(0.4)
    lease = ours.acquire("cell")
    assert lease is not None
    lease.release()


def test_a_holder_elsewhere_that_sends_heartbeats_keeps_its_lease(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = module._this_process()
    monkeypatch.setattr(module, "_this_process", lambda: {**here, "machine": "another"})
    holder = Leases(local, heartbeat=0.05).acquire("cell")
    assert holder is not None
    ours = Leases(local, expiry=5.0)
    for _ in range(5):
        assert ours.acquire("cell") is None
        time.sleep(0.1)
    assert not holder.is_lost
    holder.release()


def test_a_holder_that_was_taken_for_dead_notices(local: Location) -> None:
    holder = Leases(local, heartbeat=0.05).acquire("cell")
    assert holder is not None
    holder.mark.remove()
    theirs = Leases(local).acquire("cell")
    assert theirs is not None
    deadline = time.monotonic() + 20
    while not holder.is_lost:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    holder.release()
    assert Leases(local).acquire("cell") is None
    theirs.release()


def test_a_mark_that_nobody_can_read_blocks_for_a_while_only(local: Location) -> None:
    (local / "cell.0123.claim").write_bytes(b"\xff{")
    ours = Leases(local, expiry=0.1)
    assert ours.acquire("cell") is None
    time.sleep(0.2)
    lease = ours.acquire("cell")
    assert lease is not None
    lease.release()


def test_a_clock_that_is_set_makes_nobody_dead(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Leases(local).acquire("cell")
    assert lease is not None
    before = psutil._pslinux.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: before + 86_400)
    assert Leases(local).acquire("cell") is None
    other = Leases(local).acquire("another")
    assert other is not None
    other.release()
    lease.release()


def test_a_heartbeat_that_comes_too_late_is_undone(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Leases(local, heartbeat=0.02, expiry=0.5).acquire("cell")
    assert holder is not None
    write, has_slept = Location.write_bytes, threading.Event()

    def sleeps(self: Location, content: bytes) -> None:
        if self == holder.mark and not has_slept.is_set():
            holder.mark.remove()  # so does whoever takes it for dead
            time.sleep(0.7)
            has_slept.set()
        write(self, content)

    monkeypatch.setattr(Location, "write_bytes", sleeps)
    assert has_slept.wait(20)
    deadline = time.monotonic() + 20
    while holder.mark.exists() or not holder.is_lost:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_whoever_waits_outlives_a_store_that_is_away_and_gives_the_holder_its_time(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Leases(local, heartbeat=3600).acquire("cell")
    assert holder is not None
    elsewhere(holder)
    names, outage = Location.names, threading.Event()

    def away(self: Location) -> list[str]:
        if outage.is_set():
            raise StoreInterrupted("away")
        return names(self)

    monkeypatch.setattr(Location, "names", away)
    ours = Leases(local, expiry=0.6)
    assert ours.acquire("cell") is None
    outage.set()
    threading.Timer(0.8, outage.clear).start()
    has_waited = time.monotonic()
    with ours.hold("cell"):
        # Silent for the whole outage, in which it could not speak, and for its patience after it.
        assert time.monotonic() - has_waited > 0.8 + 0.6


def test_a_mark_does_not_stay_when_looking_fails(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, looks = Location.names, iter([True, False])

    def fails_then(self: Location) -> list[str]:
        if next(looks, True):
            return names(self)
        raise StoreInterrupted("away")

    with monkeypatch.context() as patched:
        patched.setattr(Location, "names", fails_then)
        with pytest.raises(StoreInterrupted):
            Leases(local).acquire("cell")
    assert local.names() == []
