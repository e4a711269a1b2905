"""Checkpoints written while training goes on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any


class Writer:
    """Does one piece of writing at a time in a thread; training waits only if it must.

        with Writer() as writer:
            if not writer.is_busy():
                writer.begin(write)
            writer.wait()

    What writing fails with is raised where the writer is asked next. When the block ends, for
    whatever reason, what was begun is first ended.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Any] | None = None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        try:
            # Of two errors the first counts.
            with suppress(*(() if kind is None else (Exception,))):
                self.wait()
        finally:
            self._thread.shutdown()

    def is_busy(self) -> bool:
        """Return whether something is being written; raise what the last writing failed with."""
        if self._writing is not None and self._writing.done():
            self.wait()
        return self._writing is not None

    def begin(self, write: Callable[[], None]) -> None:
        """Begin to write, after what is being written."""
        self.wait()
        self._writing = self._thread.submit(write)

    def wait(self) -> None:
        """Return when nothing is being written any more."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
