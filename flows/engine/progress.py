"""Progress of long work: bars on a terminal, lines elsewhere, the run's log under Prefect."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Protocol


class Progress(Protocol):
    """Someone who wants to know how far named pieces of work are."""

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Take in that `done` of `total` steps are behind."""

    def tell(self, line: str) -> None:
        """Take in what came of some work, which is to be shown whole."""


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

    def tell(self, line: str) -> None:
        """Write the line."""
        self._write(line)


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

    def tell(self, line: str) -> None:
        """Write the line above the bars, where it stays."""
        self._bars.console.print(line, highlight=False, markup=False)


class RunProgress(LineProgress):
    """Lines in the log of a Prefect run, and a bar in its page for each kind of work."""

    def __init__(self, write: Any, seconds: float = 5.0, seconds_of_bars: float = 15.0) -> None:
        super().__init__(write, seconds)
        self._seconds_of_bars = seconds_of_bars
        self._bars: dict[str, tuple[Any, float]] = {}

    def update(self, name: str, done: int, total: int, note: str = "") -> None:
        """Write a line and move the bar, each if it is due; a server that is away costs a bar."""
        super().update(name, done, total, note)
        bar, moved = self._bars.get(name, (None, -1e9))
        if done < total and time.monotonic() - moved < self._seconds_of_bars:
            return
        percent = 100.0 * done / max(1, total)
        with suppress(Exception):
            self._bars[name] = self._moved(bar, name, percent, note), time.monotonic()

    def _moved(self, bar: Any, name: str, percent: float, note: str) -> Any:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        said = f"{name}: {note}" if note else name
        if bar is not None:
            update_progress_artifact(bar, percent, description=said)
            return bar
        kind = name.split(maxsplit=1)[0]
        return create_progress_artifact(percent, key=f"progress-{kind}", description=said)


_current: ContextVar[Progress | None] = ContextVar("progress", default=None)


def current_progress() -> Progress:
    """Return who listens: the command line if it does, else the log of the Prefect run."""
    listener = _current.get()
    if listener is not None:
        return listener
    from prefect.runtime import flow_run, task_run

    return _of_run(f"{flow_run.id} {task_run.id}")


@lru_cache(maxsize=256)
def _of_run(_run: str) -> Progress:
    """Return who listens for a run, one for all that happens in it: it knows what it has shown."""
    from prefect.logging import get_run_logger

    return RunProgress(get_run_logger().info)


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
