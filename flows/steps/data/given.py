"""Problems that somebody brought, by the names they have in a store.

What a name means is a small file, `problems/NAME.json`: the problem, and the dataset that its data
are today. An older dataset of the same name stays where it is, and so do the runs on it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from flows.errors import BadInput
from lsm_core.benchmarks.given import GivenProblem
from lsm_core.configuration import from_plain
from lsm_core.experiments.plans import GivenPlan
from lsm_core.experiments.protocols import Problem, given_protocol
from lsm_core.names import BenchmarkName
from storage.errors import DatasetCorrupt
from storage.location import Location

FOLDER = "problems"


def keep_record(root: Location, problem: GivenProblem, **facts: Any) -> None:
    """Keep what a name means."""
    plain = {"problem": problem.parameters(), **facts}
    (root / FOLDER / f"{problem.name}.json").write_bytes(json.dumps(plain, indent=1).encode())


def given_names(root: Location) -> list[str]:
    """Return the names of the problems that a store has beside the benchmarks."""
    names = (root / FOLDER).names()
    return [name.removesuffix(".json") for name in names if name.endswith(".json")]


def record_of(name: str, root: Location) -> dict[str, Any]:
    """Return what is kept of a problem; BadInput if the store has none of this name."""
    kept = root / FOLDER / f"{name}.json"
    try:
        return dict(json.loads(kept.read_bytes()))
    except FileNotFoundError:
        known = ", ".join((*get_args(BenchmarkName), *given_names(root)))
        raise BadInput(
            f"invalid choice: '{name}' (choose from {known}); `lsm ingest FILES --as {name}` "
            "brings data of your own"
        ) from None
    except ValueError as error:
        raise DatasetCorrupt(f"{kept} cannot be read: {error}; ingest the files again") from error


def given_plan(name: str, root: Location) -> GivenPlan:
    """Return all samples of a problem that was brought."""
    record = record_of(name, root)
    try:
        sizes: Mapping[str, int] = record["split_sizes"]
        return GivenPlan(
            benchmark=from_plain(GivenProblem, record["problem"]),
            n_train=sizes["train"],
            n_validation=sizes["validation"],
            n_test=sizes["test"],
            recipe=record["recipe"],
            dataset=record["dataset"],
            samples_per_block=record["samples_per_block"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetCorrupt(
            f"what {root / FOLDER} says of {name} was written by another version ({error}); "
            "ingest the files again"
        ) from error


def problem_named(name: str, root: Location) -> Problem:
    """Return a benchmark, or how a problem is run that somebody brought under this name."""
    if name in get_args(BenchmarkName):
        return cast(BenchmarkName, name)
    return given_protocol(given_plan(name, root))


def problems_named(names: Sequence[str] | None, root: Location) -> list[Problem] | None:
    """Return several problems; None, which means all benchmarks, stays so."""
    return None if names is None else [problem_named(name, root) for name in names]
