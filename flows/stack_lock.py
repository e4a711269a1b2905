"""One at a time: the lock that whoever changes the local stack holds.

The kernel takes it back when its holder dies, however that happens. The file itself stays: removed,
it could be another file for everybody who comes later.
"""

import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from storage.errors import StoreUnavailable

PAUSE = 0.2
SOON = 1.0
"""Seconds that nobody is told of."""


@contextmanager
def stack_lock(state: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock while the block runs; `on_wait` is called once if another has it for long."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        opened = _opened(state)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot lock the stack in {state}: {error.strerror or error}; if it was started with "
            "another store, name that with LSM_STORE or --store"
        ) from error
    with opened as file:
        told_at: float | None = time.monotonic() + SOON
        while not _is_ours(file):
            if told_at is not None and time.monotonic() >= told_at:
                on_wait()
                told_at = None
            time.sleep(PAUSE)
        yield


@contextmanager
def stack_lock_if_free(state: Path) -> Iterator[bool]:
    """Provide whether this process has the lock now, and if so, hold it while the block runs."""
    try:
        file = _opened(state)
    except FileNotFoundError:  # the whole folder is gone, and is not made again by a look at it
        yield False
        return
    with file:
        yield _is_ours(file)


def _opened(state: Path) -> IO[bytes]:
    path = state / "stack.lock"
    try:
        return path.open("ab")
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not path.exists():
            raise
        return path.open("rb")  # a lock needs no right to write


def _is_ours(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
