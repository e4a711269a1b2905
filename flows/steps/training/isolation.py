"""Run a step in processes of its own, so that their death is their own."""

import multiprocessing
import os
import pickle
import socket
import threading
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from flows.errors import ProcessDied

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
) -> Result:
    """Return what `function(*arguments, report=...)` returns in a fresh process.

    The function gets a `report` that sends plain dictionaries here while it works. Its exception is
    raised here; if the process dies without one, ProcessDied says how. With several ranks that
    many processes run the function, each told its number as torchrun does; the first one's result
    counts, and if one fails the others are ended.

    Processes are not forked from this one: they would inherit the locks of torch's and Prefect's
    threads. They are forked from a server that has imported what training needs and done nothing,
    and have the environment of this process. Where there are no such servers they are spawned, and
    every one imports it all again, which takes seconds.
    """
    context = _context()
    workers: dict[Connection, BaseProcess] = {}
    for of_rank in _environments(n_ranks):
        environment = {**os.environ, **of_rank}
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_work, args=(sender, environment, function, arguments), daemon=True
        )
        process.start()
        sender.close()
        workers[receiver] = process
    try:
        return _follow(workers, function.__name__, report)
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
    while True:
        for receiver in wait(running):
            assert isinstance(receiver, Connection)
            try:
                kind, value = receiver.recv()
            except EOFError:
                raise _died(workers[receiver], number[receiver], len(workers), name) from None
            if kind == "error":
                raise _first_cause(workers, number, name, value)
            if kind == "report" and report is not None:
                report(value)
            if kind == "result":
                if receiver is first:
                    return value
                running.remove(receiver)


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
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def report(message: dict[str, Any]) -> None:
        sender.send(("report", message))

    try:
        outcome = ("result", function(*arguments, report=report))
    except BaseException as error:
        outcome = ("error", _sendable(error))
    sender.send(outcome)
    sender.close()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone: nobody would take its result.

    Whoever takes up the same work then does not meet it half-way.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _sendable(error: BaseException) -> BaseException:
    """Return the exception itself if it survives the way, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
