"""Leases: who works on what, in a store that several processes and machines share.

A lease is a file whose name begins with what is leased. Whoever wants one writes its mark, then
looks: only one whose mark stands alone goes on. Of those that write at the same time, each sees the
others, so never do two go on; all withdraw but the one whose mark sorts first, which looks again
until they have. Were it to withdraw, too, those whose looks take longer than their pauses would
meet again and again. This asks nothing of a store but that what was written is listed, which
folders and object stores keep.

Heartbeats keep it: a holder writes its mark again every few seconds. A mark that has not changed
for a minute, by the monotonic clock of whoever waits, is a dead holder's, and so is one of a
process of this machine that is gone. Work under a lease has to be idempotent: a holder that slept
for a minute is taken for dead, and two may do the same for a while.
"""

import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from storage.errors import StorageError, StoreInterrupted
from storage.location import Location
from storage.runs.processes import birth_of

HEARTBEAT = 10.0
"""Seconds between two heartbeats."""
EXPIRY = 60.0
"""Seconds without a heartbeat after which a holder counts as dead."""
PAUSE = 2.0
"""Seconds between two tries of whoever waits, after a backoff that begins much shorter."""
OUTAGE = 600.0
"""Seconds for which whoever waits for a lease bears that the store is out of reach."""
LARGEST_PID = 2**31
SUFFIX = ".claim"


class Lease:
    """The right to work on something, kept by heartbeats until it is released."""

    def __init__(self, mark: Location, heartbeat: float, expiry: float) -> None:
        self.mark = mark
        self.is_lost = False
        """Whether others may have taken this process for dead and begun the same work."""
        self._heartbeat, self._expiry = heartbeat, expiry
        self._count = 0
        self._ended = threading.Event()
        self._last = _uptime()
        self._beat()
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"lease {mark.name}")

    def keep(self) -> None:
        """Begin the heartbeats."""
        self._thread.start()

    def release(self) -> None:
        """Let others have it; one that was lost stays theirs."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(StorageError):  # out of reach; without heartbeats the mark expires
            self.mark.remove()

    def _keep(self) -> None:
        while not self._ended.wait(self._heartbeat):
            try:
                if self.mark.exists():
                    self._beat()
                else:
                    self.is_lost = True
            except Exception:  # whatever it is, the store may be back at the next heartbeat
                continue
            finally:
                # Asleep or cut off for so long that others take this process for dead. A heartbeat
                # that comes too late is undone: the mark that it made may stand beside another.
                if _uptime() - self._last > self._expiry:
                    self.is_lost = True
            if self.is_lost:
                with suppress(StorageError):
                    self.mark.remove()
                return

    def _beat(self) -> None:
        self._count += 1
        self.mark.write_bytes(json.dumps({**_this_process(), "beat": self._count}).encode())
        now = _uptime()
        if now - self._last <= self._expiry:
            self._last = now


class Leases:
    """The leases in one folder of a store, as one process sees them."""

    def __init__(
        self, folder: Location, heartbeat: float = HEARTBEAT, expiry: float = EXPIRY
    ) -> None:
        self.folder = folder
        self._heartbeat, self._expiry = heartbeat, expiry
        self._seen: dict[str, tuple[bytes, float]] = {}

    def acquire(self, name: str) -> Lease | None:
        """Return the lease of something, or None if it is another's now."""
        if self._holders(name):
            return None
        mark = self.folder / f"{name}.{uuid.uuid4().hex}{SUFFIX}"
        lease = Lease(mark, self._heartbeat, self._expiry)
        is_alone = False
        try:
            is_alone = self._comes_to_stand_alone(name, mark.name)
        finally:
            if not is_alone:
                lease.release()
        if not is_alone:
            return None
        lease.keep()
        return lease

    def _comes_to_stand_alone(self, name: str, mark: str) -> bool:
        """Return whether a mark is the only one on something, at once or when others withdraw.

        Another that sorts before ours stays, and ours goes. Those behind it go, unless one was
        alone and is the holder's: we wait for them only while nobody can take us for dead, since
        we send no heartbeats yet.
        """
        written = time.monotonic()
        while (holders := self._holders(name)) != [mark]:
            if holders[:1] != [mark] or time.monotonic() - written > self._expiry / 4:
                return False
            time.sleep(PAUSE / 32)
        return True

    @contextmanager
    def hold(self, name: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[Lease]:
        """Hold the lease of something while the block runs, after waiting for it if need be."""
        lease = self._wait_for(name, on_wait)
        try:
            yield lease
        finally:
            lease.release()

    def _wait_for(self, name: str, on_wait: Callable[[], None]) -> Lease:
        pause, reached = 0.0, time.monotonic()
        while True:
            try:
                lease = self.acquire(name)
                reached = time.monotonic()
            except StoreInterrupted:
                if time.monotonic() - reached > OUTAGE:
                    raise
                lease = None
            if lease is not None:
                return lease
            if not pause:
                on_wait()
            pause = min(PAUSE, 2 * pause or PAUSE / 32)
            # Jitter: two that withdrew for each other must not meet again and again.
            time.sleep(pause * random.uniform(0.5, 1.5))

    def _holders(self, name: str) -> list[str]:
        """Return the marks on something whose holders live; those of the dead are removed."""
        try:
            marks = [
                mark
                for mark in self.folder.names()
                if mark.endswith(SUFFIX) and mark.removesuffix(SUFFIX).rpartition(".")[0] == name
            ]
            dead = [mark for mark in marks if self._is_dead(mark)]
        except StorageError:
            # Nobody could send heartbeats meanwhile; their time begins anew.
            self._seen.clear()
            raise
        for mark in dead:
            (self.folder / mark).remove()
        return [mark for mark in marks if mark not in dead]

    def _is_dead(self, mark: str) -> bool:
        try:
            content = (self.folder / mark).read_bytes()
        except FileNotFoundError:
            return True
        now = time.monotonic()
        before, since = self._seen.get(mark, (b"", now))
        if content != before:
            self._seen[mark] = content, now
            since = now
        return now - since > self._expiry or _is_gone(content)


def _is_gone(content: bytes) -> bool:
    """Return whether a mark was left by a process of this machine that has ended.

    One that cannot be read is a stranger's, and expires if it never changes.
    """
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return False
    if not isinstance(holder, dict) or holder.get("machine") != _machine():
        return False
    pid = holder.get("pid")
    if not isinstance(pid, int) or not 0 < pid < LARGEST_PID:
        return False
    return birth_of(pid) != holder.get("born")


def _this_process() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "born": birth_of(os.getpid())}


def _uptime() -> float:
    """Return seconds of a monotonic clock that goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@cache
def _machine() -> str:
    """Return what tells this machine, since it was started, from all others."""
    try:
        # Containers of one machine have their own process numbers.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot, numbers = f"{psutil.boot_time():.0f}", ""
    return " ".join((socket.gethostname(), boot, numbers)).strip()
