"""One submission of many cells that only sleep, on a real Prefect server: what it costs and loses.

    python -m tests.measurements.many_cells --cells 200 --database sqlite
    python -m tests.measurements.many_cells --cells 200 --database postgres

The parent is the engine's own. In place of workers, which would start a process for each cell, one
process takes runs from the pool as a worker does, sleeps, keeps a result and sets the states.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults.prefect_stack import PrefectStack

SECONDS_OF_A_CELL = 1.0
SLOTS = 8
N_SOURCES = 10


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-") as folder, _database(options.database) as url:
        stack = PrefectStack(Path(folder), url)
        try:
            stack.start_server()
            stack.declare()
            figures = _measure(stack, options.cells)
            log = (Path(folder) / "server.log").read_text()
            figures["server said that its database is locked"] = log.count("database is locked")
            print(json.dumps({"database": options.database, **figures}, indent=1))
        finally:
            stack.stop()


@contextmanager
def _database(kind: str) -> Iterator[str | None]:
    if kind == "sqlite":
        yield None
        return
    from tests.faults.servers import postgres

    with postgres() as server:
        server.start()
        yield f"postgresql+asyncpg://postgres@127.0.0.1:{server.port}/postgres"


def _measure(stack: PrefectStack, n_cells: int) -> dict[str, Any]:
    processes = multiprocessing.get_context("spawn")
    order = processes.SimpleQueue()
    told = processes.SimpleQueue()
    worker = processes.Process(target=_work, args=(stack.environment, n_cells, order))
    parent = processes.Process(target=_submit, args=(stack.environment, n_cells, told))
    worker.start()
    parent.start()
    figures = dict(told.get())
    parent.join()
    queues = list(order.get())
    worker.join()
    figures["begun before the last urgent one was"] = max(
        (place for place, queue in enumerate(queues) if queue == "sources"), default=-1
    )
    return figures


def _submit(environment: dict[str, str], n_cells: int, told: Any) -> None:
    """Ask for all cells as a comparison does, in a flow, and wait for their results."""
    import os

    os.environ.update(environment, PREFECT_LOGGING_LEVEL="ERROR")
    import httpx

    requests: Counter[str] = Counter()
    send = httpx.Client.send

    def counted(client: Any, request: Any, **how: Any) -> Any:
        requests[f"{request.method} {request.url.path.split('/')[2]}"] += 1
        return send(client, request, **how)

    httpx.Client.send = counted  # type: ignore[method-assign]
    from prefect import flow

    from flows.engine.pool import Pool
    from flows.engine.schedule import Schedule
    from flows.engine.suite import Suite
    from flows.settings import Settings
    from flows.steps.training.cells import benchmark_cells
    from lsm_core.result import Result

    cells = benchmark_cells("smoke", ["burgers"], ["fno"], list(range(n_cells)))
    schedule = Schedule.of(cells)
    urgent = {cell.identity for cell in cells[-N_SOURCES:]}
    schedule.is_source = lambda cell: cell.identity in urgent  # type: ignore[method-assign]
    schedule.places = dict.fromkeys(schedule.plans(), "file:///there")
    suite = Suite(study="benchmark", preset="smoke", cells=cells, where="pool")
    figures: dict[str, Any] = {"cells": n_cells}

    @flow(name="many")
    def many() -> None:
        began = time.monotonic()
        pool = Pool(suite, Settings.from_environment(), {}, schedule)
        with pool:
            pool.begin()
            figures["seconds to submit"] = round(time.monotonic() - began, 1)
            figures["requests to submit"] = sum(requests.values())
            while not schedule.is_done():
                time.sleep(pool.seconds_between_looks)
                for cell, outcome in pool.ended(None):
                    schedule.end(cell, outcome)
                pool.begin()
        figures["seconds in all"] = round(time.monotonic() - began, 1)

    many()
    waited = figures["seconds in all"] - figures["seconds to submit"]
    later = sum(requests.values()) - figures["requests to submit"]
    figures["requests a second while waiting"] = round(later / max(1.0, waited), 2)
    ended = schedule.outcomes.values()
    figures["with a result"] = sum(isinstance(each, Result) for each in ended)
    figures["failed"] = sum(not isinstance(each, Result) for each in ended)
    told.put(figures)


def _work(environment: dict[str, str], n_cells: int, order: Any) -> None:
    """Take runs from the pool of cells, as a worker does, until all have been done."""
    import os

    os.environ.update(environment, PREFECT_LOGGING_LEVEL="ERROR")
    from prefect.client.orchestration import get_client

    from flows.settings import CELL_POOL
    from storage.location import Location

    root = Location.parse(environment["LSM_STORE"])
    taken: dict[Any, str] = {}
    with ThreadPoolExecutor(SLOTS) as slots, get_client(sync_client=True) as client:
        running: set[Any] = set()
        names: dict[Any, str] = {}
        while len(taken) < n_cells:
            time.sleep(0.5)
            running = {each for each in running if not each.done()}
            with suppress(Exception):  # a busy server is asked again
                wanted = client.get_scheduled_flow_runs_for_work_pool(
                    CELL_POOL, scheduled_before=datetime.now(UTC)
                )
                for answer in wanted:
                    run = answer.flow_run
                    if len(running) >= SLOTS or run.id in taken:
                        continue
                    if run.work_queue_id not in names:
                        names[run.work_queue_id] = client.read_work_queue(run.work_queue_id).name
                    taken[run.id] = names[run.work_queue_id]
                    running.add(slots.submit(_sleep, run.id, run.parameters, root))
    order.put(list(taken.values()))


def _sleep(run: Any, parameters: dict[str, Any], root: Any) -> None:
    """Go through the states of a run, and keep a result at its end."""
    from prefect.client.orchestration import get_client
    from prefect.states import Completed, Pending, Running

    from flows.steps.results import keep_result
    from storage.runs.checkpoints import Checkpoints
    from tests.lsm_core.reporting.results import result

    identity = parameters["identity"]
    with get_client(sync_client=True) as client:
        for state in (Pending(), Running(), Completed()):
            if state.is_completed():
                time.sleep(SECONDS_OF_A_CELL)
                keep_result(Checkpoints(root / "checkpoints" / identity), result(identity=identity))
            for _ in range(20):
                with suppress(Exception):  # a locked database answers 500 or 503
                    client.set_flow_run_state(run, state, force=True)
                    break
                time.sleep(1)


if __name__ == "__main__":
    main()
