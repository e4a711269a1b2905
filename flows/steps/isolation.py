"""Run a step in a process of its own, so that its death is its own."""

import multiprocessing
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from flows.errors import ProcessDied

Result = TypeVar("Result")
Report = Callable[[dict[str, Any]], None]


def run_isolated(
    function: Callable[..., Result], *arguments: Any, report: Report | None = None
) -> Result:
    """Return what `function(*arguments, report=...)` returns in a fresh process.

    The function gets a `report` that sends plain dictionaries here while it works. Its exception is
    raised here; if the process dies without one, ProcessDied says how. Processes are spawned, not
    forked: a fork would inherit the locks of torch's and Prefect's threads.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        return _follow(receiver, process.name, report)
    except EOFError:
        process.join()
        raise ProcessDied(
            f"the process of {function.__name__} died with exit code {process.exitcode} before it "
            "had a result; what it had saved is kept, so starting it again continues"
        ) from None
    finally:
        if process.is_alive():
            process.join(timeout=10)
            process.kill()
        process.join()


def _follow(receiver: Connection, name: str, report: Report | None) -> Any:
    while True:
        kind, value = receiver.recv()
        if kind == "report":
            if report is not None:
                report(value)
        elif kind == "result":
            return value
        else:
            raise value


def _work(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def report(message: dict[str, Any]) -> None:
        sender.send(("report", message))

    try:
        outcome = ("result", function(*arguments, report=report))
    except BaseException as error:
        outcome = ("error", _sendable(error))
    sender.send(outcome)
    sender.close()


def _sendable(error: BaseException) -> BaseException:
    """Return the exception itself if it survives the way, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
