"""Claims on work in a shared store: one holder at a time, and none that is dead."""

import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from storage import claims as module
from storage.claims import Claim, Claims, left_claims
from storage.errors import StoreInterrupted
from storage.location import Location
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


def test_what_one_holds_another_does_not_get_until_it_is_given_back(folder: Location) -> None:
    ours, theirs = Claims(folder), Claims(folder)
    claim = ours.take("cell")
    assert claim is not None
    assert theirs.take("cell") is None
    assert ours.take("cell") is None
    other = theirs.take("cell.2")
    assert other is not None
    claim.give_back()
    again = theirs.take("cell")
    assert again is not None
    again.give_back()
    other.give_back()
    assert folder.names() == []


def test_many_that_want_the_same_never_have_it_together(folder: Location) -> None:
    inside, most, turns = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most, turns
        for _ in range(3):
            with Claims(folder).held("cell"):
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


@pytest.fixture
def local(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "claims"))


def hold(url: str, has_it: Event) -> None:
    claim = Claims(Location(url)).take("cell")
    assert claim is not None
    has_it.set()
    time.sleep(600)


def test_a_killed_process_of_this_machine_holds_nothing(local: Location) -> None:
    context = multiprocessing.get_context("spawn")
    has_it = context.Event()
    holder = context.Process(target=hold, args=(local.url, has_it))
    holder.start()
    assert has_it.wait(60)
    ours = Claims(local)
    assert ours.take("cell") is None
    holder.kill()
    holder.join()
    claim = ours.take("cell")
    assert claim is not None
    claim.give_back()


def test_what_the_dead_have_claimed_is_told_from_what_the_living_have(local: Location) -> None:
    assert left_claims(local) == ([], 0)
    context = multiprocessing.get_context("spawn")
    has_it = context.Event()
    holder = context.Process(target=hold, args=(local.url, has_it))
    holder.start()
    assert has_it.wait(60)
    ours = Claims(local).take("ours.2")
    silent, lively = (Claims(local, beat=beat).take(f"{beat:.1f}") for beat in (3600.0, 0.1))
    assert ours is not None
    assert silent is not None
    assert lively is not None
    assert left_claims(local) == ([], 4)
    holder.kill()
    holder.join()
    for claim in (silent, lively):
        elsewhere(claim)
    (local / "strange.1.claim").write_bytes(b"[[[")
    assert left_claims(local, wait=2.0) == (["3600.0", "cell", "strange"], 2)
    for claim in (ours, silent, lively):
        claim.give_back()


def elsewhere(claim: Claim) -> None:
    """Make a claim look like one of another machine."""
    content = json.loads(claim.mark.read_bytes())
    claim.mark.write_bytes(json.dumps({**content, "machine": "another"}).encode())


def test_a_holder_elsewhere_is_dead_when_it_gives_no_sign_of_life(local: Location) -> None:
    silent = Claims(local, beat=3600).take("cell")
    assert silent is not None
    elsewhere(silent)
    ours = Claims(local, patience=0.3)
    assert ours.take("cell") is None
    time.sleep(0.4)
    claim = ours.take("cell")
    assert claim is not None
    claim.give_back()


def test_a_holder_elsewhere_that_gives_signs_of_life_keeps_its_claim(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = module._this_process()
    monkeypatch.setattr(module, "_this_process", lambda: {**here, "machine": "another"})
    holder = Claims(local, beat=0.05).take("cell")
    assert holder is not None
    ours = Claims(local, patience=5.0)
    for _ in range(5):
        assert ours.take("cell") is None
        time.sleep(0.1)
    assert not holder.is_lost
    holder.give_back()


def test_a_holder_that_was_taken_for_dead_notices(local: Location) -> None:
    holder = Claims(local, beat=0.05).take("cell")
    assert holder is not None
    holder.mark.remove()
    theirs = Claims(local).take("cell")
    assert theirs is not None
    deadline = time.monotonic() + 20
    while not holder.is_lost:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    holder.give_back()
    assert Claims(local).take("cell") is None
    theirs.give_back()


def test_a_mark_that_nobody_can_read_blocks_for_a_while_only(local: Location) -> None:
    (local / "cell.0123.claim").write_bytes(b"\xff{")
    ours = Claims(local, patience=0.1)
    assert ours.take("cell") is None
    time.sleep(0.2)
    claim = ours.take("cell")
    assert claim is not None
    claim.give_back()


def test_a_clock_that_is_set_makes_nobody_dead(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Claims(local).take("cell")
    assert claim is not None
    before = psutil._pslinux.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: before + 86_400)
    assert Claims(local).take("cell") is None
    other = Claims(local).take("another")
    assert other is not None
    other.give_back()
    claim.give_back()


def test_a_sign_of_life_that_comes_too_late_is_taken_back(
    local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Claims(local, beat=0.02, patience=0.5).take("cell")
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
    holder = Claims(local, beat=3600).take("cell")
    assert holder is not None
    elsewhere(holder)
    names, outage = Location.names, threading.Event()

    def away(self: Location) -> list[str]:
        if outage.is_set():
            raise StoreInterrupted("away")
        return names(self)

    monkeypatch.setattr(Location, "names", away)
    ours = Claims(local, patience=0.6)
    assert ours.take("cell") is None
    outage.set()
    threading.Timer(0.8, outage.clear).start()
    has_waited = time.monotonic()
    with ours.held("cell"):
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
            Claims(local).take("cell")
    assert local.names() == []
