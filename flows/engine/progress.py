"""Progress of long work: bars on a terminal, lines elsewhere, the run's log under Prefect."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Progress(Protocol):
    """Someone who wants to know how far named pieces of work are."""

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Take in that `done` of `total` steps are behind."""


class LineProgress:
    """Plain lines, one at the start and end of each piece of work and every few seconds between."""

    def __init__(self, write: Any, seconds: float = 5.0) -> None:
        self._write = write
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Write a line if one is due."""
        now = time.monotonic()
        if done < total and now - self._last.get(name, -1e9) < self._seconds:
            return
        self._last[name] = now
        self._write(f"{name}: {done} of {total}{'  ' + note if note else ''}")


class BarProgress:
    """Bars that are redrawn in place."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[str, Any] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Move the bar of this piece of work."""
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, note=note)
        self._bars.update(self._tasks[name], completed=done, total=total, note=note)


_current: ContextVar[Progress | None] = ContextVar("progress", default=None)


def current_progress() -> Progress:
    """Return who listens: the command line if it does, else the log of the Prefect run."""
    listener = _current.get()
    if listener is not None:
        return listener
    from prefect.logging import get_run_logger

    return LineProgress(get_run_logger().info)


@contextmanager
def show_progress() -> Iterator[None]:
    """Show progress on the error stream while the block runs, so that output stays clean."""
    with ExitStack() as stack:
        listener: Progress
        if sys.stderr.isatty():
            listener = BarProgress(stack.enter_context(_bars()))
        else:
            listener = LineProgress(lambda line: print(line, file=sys.stderr, flush=True))
        token = _current.set(listener)
        stack.callback(_current.reset, token)
        yield


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    return Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
