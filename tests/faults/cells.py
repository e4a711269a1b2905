"""Comparisons whose cells are runs on a pool, while something under them is killed or stopped.

A session keeps work in hand on a stack and breaks something again and again, each time at a random
moment of some run. A trial is one such hit: it ends when all runs that were under way have ended,
and counts what the store and MLflow have of their cells. Hits of later trials come meanwhile: most
of the time passes with waiting. All sessions of a call share one stack.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from flows.engine.pool import MOST_STARTS
from flows.settings import CELL_POOL, CONTROL_POOL
from tests.faults.prefect_stack import PrefectStack
from tests.faults.servers import Postgres, postgres
from tests.faults.table import KILL_TRIALS, Outcome, Trial

FIRST_GUESS = 25.0
"""Seconds that a run takes, as long as none has ended."""
PAUSE_BETWEEN_HITS = 20.0
"""A hit that meets all runs comes within so many seconds after the last was mended."""
MOST_PARENTS = 3
"""Comparisons in hand below which two more are asked for; their pool has no limit."""
LONGEST_START = 60.0
"""A run that is pending for longer waits for the server, and other work is begun meanwhile."""
PATIENCE = 1500.0
CELLS_AT_ONCE, FEW = 10, 3
"""Cells that are asked for together; few where a hit meets all, since they are soon hit again."""
SUSPENDED_SECONDS = 120.0
"""Longer than the automation waits that takes silent runs for dead."""
ENDED = ("COMPLETED", "CANCELLED")

Run = dict[str, Any]
Hit = Callable[[PrefectStack, Run, random.Random], bool]
"""Breaks something under a run; returns whether that was still under way."""
_seeds = count()


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
    asked: set[int] = field(default_factory=set)
    """The seeds of all cells that were asked for."""
    seconds: float = FIRST_GUESS
    """That a run takes."""
    _due: dict[tuple[str, int], float] = field(default_factory=dict)
    _next: float = 0.0
    _early: Counter[str] = field(default_factory=Counter)
    """How often each run was hit when it was about to start."""

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

    def _runs(self) -> list[Run]:
        runs = self.stack.runs("train" if self.of_parents else "cell")
        return [run for run in runs if _seed(run) in self.asked]

    def _look(self) -> None:
        """Ask for more work if there is too little, and hit what is due."""
        self.stack.revive()
        runs = self._runs()
        ended = [run for run in runs if run["state_type"] == "COMPLETED"]
        self.done = {_seed(run) for run in ended}
        if ended:
            self.seconds = median(run["total_run_time"] for run in ended) or FIRST_GUESS
        active = [run for run in runs if run["state_type"] not in ENDED]
        wanted = KILL_TRIALS - len(self.victims)
        if wanted <= 0:
            return
        in_hand = [run for run in active if not _is_stuck(run)]
        waiting = [run for run in in_hand if run["run_count"] == 0]
        is_room = len(in_hand) < MOST_PARENTS if self.of_parents else len(waiting) < 2
        if len(runs) >= len(self.asked) and is_room:
            self._submit(FEW if self.hits_all else min(wanted, CELLS_AT_ONCE))
        for run in active:
            if self._is_due(run, active):
                self._hit(run, active)
                return  # the world has changed

    def _is_due(self, run: Run, active: list[Run]) -> bool:
        """Return whether something is to be broken under a run now.

        Never at its last start, nor at that of another that the hit would meet: that a run stays
        down then is another promise.
        """
        if run["state_type"] != self.at_state or time.monotonic() < self._next:
            return False
        met = [each for each in active if each["state_type"] == "RUNNING"]
        if any(each["run_count"] >= MOST_STARTS for each in (met if self.hits_all else [run])):
            return False
        if any(self._early[each] >= MOST_STARTS - 1 for each in self._about()):
            return False
        # Before a run has started there is little time, and it is over when nothing has come of it.
        longest = self.seconds if self.at_state == "RUNNING" else 5.0
        longest = min(longest, PAUSE_BETWEEN_HITS) if self.hits_all else longest
        now = time.monotonic()
        return now >= self._due.setdefault(self._start(run), now + longest * self.moments.random())

    def _start(self, run: Run) -> tuple[str, int]:
        """Return what one hit is aimed at: this start of a run, or all that is under way."""
        return run["id"], len(self.victims) if self.hits_all else run["run_count"]

    def _about(self) -> list[str]:
        """Return the runs that a hit of all meets before their start, which is not counted then."""
        if not self.hits_all:
            return []
        runs = [*self.stack.runs("train"), *self.stack.runs("cell")]
        return [run["id"] for run in runs if run["state_type"] == "PENDING"]

    def _submit(self, n_cells: int) -> None:
        seeds = [next(_seeds) for _ in range(2 if self.of_parents else n_cells)]
        self.asked |= set(seeds)
        for each in [[seed] for seed in seeds] if self.of_parents else [seeds]:
            self.stack.submit(each)

    def _hit(self, run: Run, active: list[Run]) -> None:
        aim, about = self._start(run), self._about()
        if self.hit(self.stack, run, self.moments):
            self._due[aim] = math.inf  # one that is cut off stands as running for a while
            self._early.update(about)
            under_way = ("RUNNING", "PENDING")
            met = [each for each in active if each["state_type"] in under_way]
            self.victims.append({_seed(each) for each in (met if self.hits_all else [run])})
        else:
            self._next = time.monotonic() + 2.0  # it had ended, or not begun
            self._due = {}

    def _told(self, number: int) -> str:
        if len(self.victims) <= number:
            return "nothing was under way that could be hit"
        left = self.victims[number] - self.done
        return "; ".join(
            f"seed {_seed(run)} {run['state']['name']} after {run['run_count']} starts: "
            f"{run['state']['message']}"
            for run in self._runs()
            if _seed(run) in left
        )


def _is_stuck(run: Run) -> bool:
    """Return whether whoever was to start a run is gone: only the server helps, after minutes."""
    if run["state_type"] != "PENDING":
        return False
    since = datetime.fromisoformat(run["state"]["timestamp"])
    return (datetime.now(UTC) - since).total_seconds() > LONGEST_START


def _seed(run: Run) -> int:
    """Return the seed of a cell, or of the one cell of a comparison."""
    given = run["parameters"]
    return int(given["seed"] if "seed" in given else given["seeds"][0])


class SharedStack:
    """The stack of all sessions of a call, with PostgreSQL under Prefect's server."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._made: tuple[PrefectStack, Postgres] | None = None

    def take(self, folder: Path) -> tuple[PrefectStack, Postgres]:
        """Return it, started in a folder if it was not."""
        if self._made is None:
            database = self._held.enter_context(postgres())
            database.start()
            url = f"postgresql+asyncpg://postgres@127.0.0.1:{database.port}/postgres"
            place = folder.parent / "stack"
            place.mkdir()
            stack = PrefectStack(place, url)
            self._held.callback(stack.stop)
            stack.start()
            self._made = stack, database
        return self._made

    def close(self) -> None:
        """End it; the next session starts another."""
        self._made = None
        self._held.close()


shared = SharedStack()


@contextmanager
def session(folder: Path, hit: Hit, **how: Any) -> Iterator[Trial]:
    """Provide the trials of one kind of hit."""
    stack, _ = shared.take(folder)
    yield Session(stack, hit, **how).trial


def kill_process(stack: PrefectStack, run: Run, _moments: random.Random) -> bool:
    """Kill the process of a run, as when memory runs out."""
    return stack.kill_run(run["id"])


def kill_worker(pool: str, stack: PrefectStack, run: Run, moments: random.Random) -> bool:
    """Kill a worker alone, or with its runs in one of three, and start it again.

    It has to be the one that has started the run: another has nothing in hand yet.
    """
    if not stack.has_started(pool, run["id"]):
        return False
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

    stack, _ = shared.take(folder)
    yield Resuming(stack, suspensions.suspend).trial


@contextmanager
def database_killed(folder: Path) -> Iterator[Trial]:
    """Kill the PostgreSQL of Prefect's server, and start it again."""
    stack, server = shared.take(folder)

    def kill(_stack: PrefectStack, _run: Run, moments: random.Random) -> bool:
        server.kill()
        time.sleep(moments.uniform(0, 5))
        server.start()
        return True

    yield Session(stack, kill, hits_all=True).trial


cell_killed = partial(session, hit=kill_process)
parent_killed = partial(session, hit=kill_process, of_parents=True)
cell_worker_killed = partial(session, hit=partial(kill_worker, CELL_POOL), hits_all=True)
control_worker_killed = partial(
    session, hit=partial(kill_worker, CONTROL_POOL), of_parents=True, hits_all=True
)
server_killed = partial(session, hit=kill_server, hits_all=True)
killed_before_start = partial(session, hit=kill_before_the_start, at_state="PENDING", hits_all=True)
