"""Run a step in processes of its own, so that their death is their own."""

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from statistics import median
from typing import Any, TypeVar

from flows.errors import ProcessDied

FEWEST_REPORTS = 3
"""How many epochs have to pass before their pace is known."""
PAUSES_OF_A_HANG = 30
SHORTEST_HANG = 600.0
"""A training hangs after so many times the median of its epochs without one, and such seconds."""
SECONDS_TO_END = 5.0
"""How long a process that is ended may take to say so."""

Result = TypeVar("Result")
Report = Callable[[dict[str, Any]], None]

PRELOADED = [
    "flows.steps.training.run",
    "torch._dynamo",  # every optimizer imports it, for seconds
    "mlflow.store.tracking.sqlalchemy_store",
]
"""What the server imports from which processes are forked."""


def run_isolated(
    function: Callable[..., Result],
    *arguments: Any,
    report: Report | None = None,
    n_ranks: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Return what `function(*arguments, report=...)` returns in a fresh process.

    The function gets a `report` that sends plain dictionaries here while it works. Its exception is
    raised here; if the process dies without one, ProcessDied says how. With several ranks that
    many processes run the function, each told its number as torchrun does; the first one's result
    counts, and if one fails the others are ended.

    Processes are not forked from this one: they would inherit the locks of torch's and Prefect's
    threads. They are forked from a server that has imported what training needs and done nothing,
    and have the environment of this process, with what is given in its place. Where there are no
    such servers they are spawned, and every one imports it all again, which takes seconds.
    """
    context = _context()
    workers: dict[Connection, BaseProcess] = {}
    for of_rank in _environments(n_ranks):
        variables = {**os.environ, **(environment or {}), **of_rank}
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(sender, variables, function, arguments), daemon=True
        )
        process.start()
        sender.close()
        workers[receiver] = process
    try:
        return _follow(workers, function.__name__, report)
    except BaseException:
        for process in workers.values():
            process.terminate()  # it may say that it was ended
        raise
    finally:
        for process in workers.values():
            if process.is_alive():
                process.join(timeout=10 if n_ranks == 1 else 1)
                process.kill()
            process.join()


def prepare_isolation() -> None:
    """Let the server begin its imports now; whoever has other work first does not wait for them."""
    if _context().get_start_method() == "forkserver":
        forkserver.ensure_running()


def _context() -> Any:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _environments(n_ranks: int) -> list[dict[str, str]]:
    """Return what tells each rank its number and where the others are."""
    if n_ranks == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(n_ranks),
            "LOCAL_WORLD_SIZE": str(n_ranks),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
        for rank in range(n_ranks)
    ]


def _follow(workers: dict[Connection, BaseProcess], name: str, report: Report | None) -> Any:
    """Return the first worker's result; raise what goes wrong in any."""
    first, *_ = workers
    number = {receiver: rank for rank, receiver in enumerate(workers)}
    running = list(workers)
    pace = _Pace(name)
    while True:
        for receiver in pace.wait(running):
            assert isinstance(receiver, Connection)
            try:
                kind, value = receiver.recv()
            except EOFError:
                raise _died(workers[receiver], number[receiver], len(workers), name) from None
            if kind == "error":
                raise _first_cause(workers, number, name, value)
            if kind == "report":
                pace.note()
                if report is not None:
                    report(value)
            if kind == "result":
                if receiver is first:
                    return value
                running.remove(receiver)


class _Pace:
    """How long a step takes between its reports, and when it has stopped for too long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = time.monotonic()
        self._pauses: list[float] = []

    def note(self) -> None:
        """Take in a report."""
        now = time.monotonic()
        self._pauses.append(now - self._last)
        self._last = now

    def wait(self, running: list[Connection]) -> list[Any]:
        """Return the connections that have something to say; ProcessDied if none has for long.

        A kernel that hangs, or a message that never comes, does not end by itself.
        """
        if len(self._pauses) < FEWEST_REPORTS:
            return wait(running)
        limit = max(SHORTEST_HANG, PAUSES_OF_A_HANG * median(self._pauses))
        ready = wait(running, timeout=max(0.0, self._last + limit - time.monotonic()))
        if not ready:
            raise ProcessDied(
                f"{self._name} has not moved for {limit:.0f} s, {PAUSES_OF_A_HANG} times what its "
                "epochs take; it was ended, and starting it again continues"
            )
        return ready


def _first_cause(
    workers: dict[Connection, BaseProcess],
    number: dict[Connection, int],
    name: str,
    error: BaseException,
) -> BaseException:
    """Return the error, or the death of another rank that led to it.

    A rank whose partner was killed fails in its next message; the kill is what to tell.
    """
    for receiver, process in workers.items():
        process.join(timeout=1 if len(workers) > 1 else 0)
        if process.exitcode is not None and process.exitcode < 0:
            return _died(process, number[receiver], len(workers), name)
    return error


def _died(process: BaseProcess, rank: int, n_ranks: int, name: str) -> ProcessDied:
    process.join()
    which = "" if n_ranks == 1 else f"rank {rank} of {n_ranks} of "
    return ProcessDied(
        f"the process of {which}{name} died with exit code {process.exitcode} before it "
        "had a result; what it had saved is kept, so starting it again continues"
    )


def _work(
    sender: Connection,
    environment: dict[str, str],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    # Ended from outside, it leaves by an exception: what it has begun is closed on the way.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def report(message: dict[str, Any]) -> None:
        sender.send(("report", message))

    try:
        outcome = ("result", function(*arguments, report=report))
    except BaseException as error:
        # The way to another process keeps the notes of an exception, not where it was raised.
        error.add_note(traceback.format_exc())
        outcome = ("error", _sendable(error))
    with suppress(BrokenPipeError):  # whoever asked may be gone
        sender.send(outcome)
    sender.close()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone: nobody would take its result.

    Whoever takes up the same work then does not meet it half-way.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_END)
        os._exit(1)


def _sendable(error: BaseException) -> BaseException:
    """Return the exception itself if it survives the way, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        other = RuntimeError(f"{type(error).__name__}: {error}")
        other.add_note("\n".join(error.__notes__))
        return other
    return error
