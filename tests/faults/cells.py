"""Comparisons whose cells are runs on a pool, while something under them is killed or stopped.

A session keeps a stack up and work in hand, and breaks something again and again, each time at a
random moment of some run. A trial is one such hit: it ends when all runs that were under way have
ended, and counts what the store and MLflow have of their cells. Hits of later trials come
meanwhile: most of the time passes with waiting.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from flows.engine.pool import MOST_STARTS
from flows.settings import CELL_POOL, CONTROL_POOL
from tests.faults.prefect_stack import PrefectStack
from tests.faults.table import KILL_TRIALS, Outcome, Trial

SECONDS_OF_A_RUN = 25.0
"""A hit comes within so many seconds after a run was seen to begin."""
PATIENCE = 1500.0
CELLS_AT_ONCE = 10
SUSPENDED_SECONDS = 120.0
"""Longer than the automation waits that takes silent runs for dead."""

Run = dict[str, Any]
Hit = Callable[[PrefectStack, Run, random.Random], bool]
"""Breaks something under a run; returns whether that was still under way."""


@dataclass
class Session:
    """Work in hand, and what was done to it."""

    stack: PrefectStack
    hit: Hit
    of_parents: bool = False
    """Whether hits are aimed at comparisons, each of one cell, and not at the cells of one."""
    at_state: str = "RUNNING"
    hits_all: bool = False
    """Whether a hit meets all runs that are under way, and not one alone."""
    moments: random.Random = field(default_factory=lambda: random.Random("cells"))
    victims: list[set[int]] = field(default_factory=list)
    """The seeds of the runs that each hit has met."""
    done: set[int] = field(default_factory=set)
    numbers: int = 0
    """Of trials that were begun."""
    _due: dict[str, float] = field(default_factory=dict)
    _seed: int = 0

    def trial(self, _moments: random.Random, _own: Path) -> Outcome:
        """Return what was lost and doubled by the next hit, when all that it met has ended."""
        number, self.numbers = self.numbers, self.numbers + 1
        deadline = time.monotonic() + PATIENCE
        while len(self.victims) <= number or not self.victims[number] <= self.done:
            assert time.monotonic() < deadline, self._told(number)
            self._look()
            time.sleep(1)
        counts = [self.stack.count(seed) for seed in self.victims[number]]
        return Outcome(sum(c.lost for c in counts), sum(c.duplicated for c in counts))

    def _look(self) -> None:
        """Ask for more work if there is too little, and hit what is due."""
        runs = self.stack.runs("train" if self.of_parents else "cell")
        self.done = {_seed(run) for run in runs if run["state_type"] == "COMPLETED"}
        active = [run for run in runs if run["state_type"] not in ("COMPLETED", "CANCELLED")]
        met = set().union(*self.victims)
        fresh = [run for run in active if _seed(run) not in met]
        wanted = KILL_TRIALS - len(self.victims)
        if wanted > 0 and self._seed <= len(runs) and len(fresh) < 2:
            self._submit(min(wanted + 2, CELLS_AT_ONCE))
        for run in fresh:
            if run["state_type"] != self.at_state or wanted <= 0:
                continue
            delay = SECONDS_OF_A_RUN if self.at_state == "RUNNING" else 5.0
            due = self._due.setdefault(run["id"], time.monotonic() + delay * self.moments.random())
            if time.monotonic() >= due and self._may_be_hit(active):
                self._hit(run, active)
                return  # the world has changed

    def _submit(self, n_cells: int) -> None:
        seeds = list(range(self._seed, self._seed + (2 if self.of_parents else n_cells)))
        self._seed += len(seeds)
        for each in [[seed] for seed in seeds] if self.of_parents else [seeds]:
            self.stack.submit(each)

    def _may_be_hit(self, active: list[Run]) -> bool:
        """Return whether no run would be hit for the last time: that is another promise."""
        under_way = [run for run in active if run["state_type"] == "RUNNING"]
        return not self.hits_all or all(run["run_count"] < MOST_STARTS for run in under_way)

    def _hit(self, run: Run, active: list[Run]) -> None:
        if self.hit(self.stack, run, self.moments):
            under_way = ("RUNNING", "PENDING")
            met = [each for each in active if each["state_type"] in under_way]
            self.victims.append({_seed(each) for each in (met if self.hits_all else [run])})
        else:
            del self._due[run["id"]]  # it had ended, or not begun

    def _told(self, number: int) -> str:
        if len(self.victims) <= number:
            return "nothing was under way that could be hit"
        left = self.victims[number] - self.done
        runs = self.stack.runs("train" if self.of_parents else "cell")
        return "; ".join(
            f"seed {_seed(run)} {run['state']['name']} after {run['run_count']} starts: "
            f"{run['state']['message']}"
            for run in runs
            if _seed(run) in left
        )


def _seed(run: Run) -> int:
    """Return the seed of a cell, or of the one cell of a comparison."""
    given = run["parameters"]
    return int(given["seed"] if "seed" in given else given["seeds"][0])


@contextmanager
def session(folder: Path, hit: Hit, database: str | None = None, **how: Any) -> Iterator[Trial]:
    """Provide the trials of one kind of hit on a stack of its own."""
    stack = PrefectStack(folder, database)
    try:
        stack.start()
        yield Session(stack, hit, **how).trial
    finally:
        stack.stop()


def kill_process(stack: PrefectStack, run: Run, _moments: random.Random) -> bool:
    """Kill the process of a run, as when memory runs out."""
    return stack.kill_run(run["id"])


def kill_worker(pool: str, stack: PrefectStack, _run: Run, moments: random.Random) -> bool:
    """Kill a worker alone, or with its runs in one of three, and start it again."""
    stack.kill(pool, with_children=moments.random() < 1 / 3)
    stack.start_worker(pool)
    return True


def kill_server(stack: PrefectStack, _run: Run, moments: random.Random) -> bool:
    """Kill the server with all its children, and start it again after a while."""
    stack.kill("server")
    time.sleep(moments.uniform(0, 5))
    stack.start_server()
    return True


def kill_before_the_start(stack: PrefectStack, run: Run, _moments: random.Random) -> bool:
    """Kill the worker with what it is about to start, if the run is still pending."""
    state = stack.ask("GET", f"/flow_runs/{run['id']}")["state_type"]
    if state != "PENDING":
        return False
    stack.kill(CELL_POOL)
    stack.start_worker(CELL_POOL)
    return True


class Suspensions:
    """Suspends runs and resumes each after a while, if nobody has touched it."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def suspend(self, stack: PrefectStack, run: Run, _moments: random.Random) -> bool:
        wanted = {"type": "PAUSED", "name": "Suspended", "message": "for a while"}
        body = {"state": {**wanted, "state_details": {"pause_reschedule": True}}}
        answer = stack.ask("POST", f"/flow_runs/{run['id']}/set_state", body)
        if answer["status"] != "ACCEPT":
            return False
        self._until[run["id"]] = time.monotonic() + SUSPENDED_SECONDS
        return True

    def resume_what_is_due(self, stack: PrefectStack) -> None:
        for run, until in list(self._until.items()):
            if time.monotonic() < until:
                continue
            del self._until[run]
            now = stack.ask("GET", f"/flow_runs/{run}")["state"]
            assert now["name"] == "Suspended", f"a suspended run became {now['name']}"
            stack.ask("POST", f"/flow_runs/{run}/resume", {})


@contextmanager
def suspended(folder: Path) -> Iterator[Trial]:
    """Suspend cells and resume them after two minutes."""
    suspensions = Suspensions()

    class Resuming(Session):
        def _look(self) -> None:
            suspensions.resume_what_is_due(self.stack)
            super()._look()

    stack = PrefectStack(folder)
    try:
        stack.start()
        yield Resuming(stack, suspensions.suspend).trial
    finally:
        stack.stop()


@contextmanager
def database_killed(folder: Path) -> Iterator[Trial]:
    """Kill the PostgreSQL of Prefect's server, and start it again."""
    from tests.faults.servers import postgres

    with postgres() as server:
        server.start()

        def kill(_stack: PrefectStack, _run: Run, moments: random.Random) -> bool:
            server.kill()
            time.sleep(moments.uniform(0, 5))
            server.start()
            return True

        url = f"postgresql+asyncpg://postgres@127.0.0.1:{server.port}/postgres"
        with session(folder, kill, url, hits_all=True) as trial:
            yield trial


cell_killed = partial(session, hit=kill_process)
parent_killed = partial(session, hit=kill_process, of_parents=True)
cell_worker_killed = partial(session, hit=partial(kill_worker, CELL_POOL), hits_all=True)
control_worker_killed = partial(
    session, hit=partial(kill_worker, CONTROL_POOL), of_parents=True, hits_all=True
)
server_killed = partial(session, hit=kill_server, hits_all=True)
killed_before_start = partial(session, hit=kill_before_the_start, at_state="PENDING", hits_all=True)
