"""The table of faults: what is broken on purpose, what is promised, and what came of it.

Every trial is written to a file when it ends, so that the table can be filled in pieces and a
killed run of it continues. On another machine the rows of the page that is kept are what was tried.
"""

import json
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

KILL_TRIALS = 20
OTHER_TRIALS = 10
MOST_MISSES = 40
COLUMNS = ("fault", "promise", "times tried", "lost", "duplicated", "not recovered", "measured")


@dataclass(frozen=True)
class Outcome:
    """What one trial found: accepted results that are gone, and results that are there twice."""

    lost: int = 0
    duplicated: int = 0


Trial = Callable[[random.Random, Path], Outcome | None]
"""Breaks something once, mends it and counts; None if the work had ended before the fault came."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that can happen; `session` sets up what all trials share."""

    name: str
    promise: str
    session: Callable[[Path], AbstractContextManager[Trial]]
    trials: int = KILL_TRIALS


@dataclass
class Tally:
    """What is known of one fault so far."""

    tried: int = 0
    lost: int = 0
    duplicated: int = 0
    failures: list[str] = field(default_factory=list)
    missed: int = 0
    seconds: float = 0.0
    day: str = ""

    @property
    def is_clean(self) -> bool:
        """Return whether every trial kept its promise."""
        return not (self.lost or self.duplicated or self.failures)


def read_results(path: Path) -> dict[str, Tally]:
    """Return what earlier runs found."""
    if not path.exists():
        return {}
    return {name: Tally(**tally) for name, tally in json.loads(path.read_text()).items()}


def keep_results(path: Path, results: dict[str, Tally]) -> None:
    """Write down what is known, in one step."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({each: asdict(known) for each, known in results.items()}))
    partial.replace(path)


def try_faults(
    faults: list[Fault], path: Path, folder: Path, trials: int | None = None
) -> Iterator[tuple[str, Tally]]:
    """Try what has not been tried often enough, and yield the tally after each trial."""
    for fault in faults:
        wanted = trials or fault.trials
        if read_results(path).get(fault.name, Tally()).tried >= wanted:
            continue
        place = folder / fault.name.replace(" ", "-").replace(",", "")
        place.mkdir(parents=True, exist_ok=True)
        with fault.session(place) as trial:
            while read_results(path).get(fault.name, Tally()).tried < wanted:
                yield fault.name, _try_once(fault.name, trial, path, place)


def _try_once(name: str, trial: Trial, path: Path, folder: Path) -> Tally:
    results = read_results(path)
    tally = results.setdefault(name, Tally())
    number = tally.tried + tally.missed
    if tally.missed > MOST_MISSES:
        raise RuntimeError(f"{name}: the work ends before the fault comes, again and again")
    own = folder / f"{number:03d}-{time.time_ns()}"
    own.mkdir()
    began = time.monotonic()
    try:
        outcome = trial(random.Random(f"{name} {number}"), own)
    except Exception as error:
        tally.tried += 1
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:300]
        tally.failures.append(f"{type(error).__name__} in {place.name}: {said}")
    else:
        if outcome is None:
            tally.missed += 1
        else:
            tally.tried += 1
            tally.lost += outcome.lost
            tally.duplicated += outcome.duplicated
    tally.seconds += time.monotonic() - began
    tally.day = datetime.now(UTC).date().isoformat()
    keep_results(path, results)
    return tally


def markdown_table(faults: list[Fault], results: dict[str, Tally]) -> str:
    """Return the table of all faults that were tried, for people."""
    rows = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for fault in faults:
        tally = results.get(fault.name)
        if tally is not None and tally.tried:
            found = (tally.tried, tally.lost, tally.duplicated, len(tally.failures), tally.day)
            rows.append(f"| {fault.name} | {fault.promise} | {' | '.join(map(str, found))} |")
    return "\n".join(rows)


def kept_promises(text: str) -> dict[str, Tally]:
    """Return the rows of a page in which every promise was kept: what need not be tried again."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    rows = [cell for cell in cells if len(cell) == len(COLUMNS) and cell != list(COLUMNS)]
    return {
        name: Tally(tried=int(tried), day=day)
        for name, _promise, tried, *broken, day in rows
        if broken == ["0", "0", "0"]
    }
