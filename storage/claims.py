"""Claims: who works on what, in a store that several processes and machines share.

A claim is a file whose name begins with what is claimed. Whoever wants one writes its mark, then
looks: if another mark is there, it withdraws. Of two that write at the same time, each sees the
other, so never do both go on; if both withdraw, both try again. This asks nothing of a store but
that what was written is listed, which folders and object stores keep.

A holder writes its mark again every few seconds. One that has not changed for a minute, by the
clock of whoever waits, is a dead holder's, and so is one of a process of this machine that is gone.
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
from storage.processes import birth_of

BEAT = 10.0
"""Seconds between two signs of life."""
PATIENCE = 60.0
"""Seconds without a sign of life after which a holder counts as dead."""
PAUSE = 2.0
OUTAGE = 600.0
"""Seconds for which whoever waits for a claim bears that the store is out of reach."""
SUFFIX = ".claim"


class Claim:
    """The right to work on something, kept alive until it is given back."""

    def __init__(self, mark: Location, beat: float, patience: float) -> None:
        self.mark = mark
        self.is_lost = False
        """Whether others may have taken this process for dead and begun the same work."""
        self._beat, self._patience = beat, patience
        self._count = 0
        self._ended = threading.Event()
        self._signed = _uptime()
        self._sign()
        self._thread = threading.Thread(
            target=self._stay_alive, daemon=True, name=f"claim {mark.name}"
        )

    def keep(self) -> None:
        """Begin to give signs of life."""
        self._thread.start()

    def give_back(self) -> None:
        """Let others have it; one that was lost stays theirs."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with suppress(StorageError):  # out of reach; without signs of life the mark dies
            self.mark.remove()

    def _stay_alive(self) -> None:
        while not self._ended.wait(self._beat):
            try:
                if self.mark.exists():
                    self._sign()
                else:
                    self.is_lost = True
            except Exception:  # whatever it is, the store may be back at the next beat
                continue
            finally:
                # Asleep or cut off for so long that others take this process for dead. A sign that
                # comes too late is taken back: the mark that it made may stand beside another.
                if _uptime() - self._signed > self._patience:
                    self.is_lost = True
            if self.is_lost:
                with suppress(StorageError):
                    self.mark.remove()
                return

    def _sign(self) -> None:
        self._count += 1
        self.mark.write_bytes(json.dumps({**_this_process(), "beat": self._count}).encode())
        now = _uptime()
        if now - self._signed <= self._patience:
            self._signed = now


class Claims:
    """The claims in one folder of a store, as one process sees them."""

    def __init__(self, folder: Location, beat: float = BEAT, patience: float = PATIENCE) -> None:
        self.folder = folder
        self._beat, self._patience = beat, patience
        self._seen: dict[str, tuple[bytes, float]] = {}

    def take(self, name: str) -> Claim | None:
        """Return the claim on something, or None if it is another's now."""
        if self._holders(name):
            return None
        mark = self.folder / f"{name}.{uuid.uuid4().hex}{SUFFIX}"
        claim = Claim(mark, self._beat, self._patience)
        try:
            is_alone = self._holders(name) == [mark.name]
        except BaseException:
            claim.give_back()
            raise
        if not is_alone:
            claim.give_back()
            return None
        claim.keep()
        return claim

    @contextmanager
    def held(self, name: str, on_wait: Callable[[], None] = lambda: None) -> Iterator[Claim]:
        """Hold the claim on something while the block runs, after waiting for it if need be."""
        claim = self._waited_for(name, on_wait)
        try:
            yield claim
        finally:
            claim.give_back()

    def _waited_for(self, name: str, on_wait: Callable[[], None]) -> Claim:
        pause, reached = 0.0, time.monotonic()
        while True:
            try:
                claim = self.take(name)
                reached = time.monotonic()
            except StoreInterrupted:
                if time.monotonic() - reached > OUTAGE:
                    raise
                claim = None
            if claim is not None:
                return claim
            if not pause:
                on_wait()
            pause = min(PAUSE, 2 * pause or PAUSE / 32)
            # Two that withdrew for each other must not meet again and again.
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
            # Nobody could give signs of life meanwhile; their time begins anew.
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
        return now - since > self._patience or _is_gone(content)


def left_claims(folder: Location, wait: float = 1.5 * BEAT) -> tuple[list[str], int]:
    """Return what dead holders have claimed, and how many claims the living have.

    Holders of other machines are given some seconds for a sign of life, if there are any.
    """
    marks = {mark: _content(folder / mark) for mark in folder.names() if mark.endswith(SUFFIX)}
    there = {mark: content for mark, content in marks.items() if content is not None}
    dead = {mark for mark, content in there.items() if _is_gone(content)}
    elsewhere = {mark for mark, content in there.items() if not _is_here(content)}
    if elsewhere:
        time.sleep(wait)
        dead |= {mark for mark in elsewhere if _content(folder / mark) == there[mark]}
    names = {mark.removesuffix(SUFFIX).rpartition(".")[0] for mark in dead}
    return sorted(names), len(there.keys() - dead)


def _content(mark: Location) -> bytes | None:
    try:
        return mark.read_bytes()
    except FileNotFoundError:
        return None  # it was given back just now


def _is_here(content: bytes) -> bool:
    """Return whether a mark is that of a process of this machine."""
    return _told(content, lambda holder: holder["machine"] == _machine())


def _is_gone(content: bytes) -> bool:
    """Return whether a mark was left by a process of this machine that has ended."""
    return _is_here(content) and _told(
        content, lambda holder: birth_of(int(holder["pid"])) != holder["born"]
    )


def _told(content: bytes, what: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether a mark says something; False if it is no mark of ours."""
    try:
        return what(json.loads(content))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        OSError,
    ):
        return False  # whoever wrote this; if it never changes, it is dead in a while


def _this_process() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "born": birth_of(os.getpid())}


def _uptime() -> float:
    """Return seconds on a clock that nobody sets and that goes on while the machine sleeps."""
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
