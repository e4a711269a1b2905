"""What runs are called in Prefect's lists: as whoever submits them says, else by what they do."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from prefect.runtime import flow_run

FEW = 3
"""So many names are listed; of more there is a number."""


def named(describe: Callable[[dict[str, Any]], str]) -> Callable[[], str]:
    """Return a name for runs of a flow, from their parameters, that keeps one that was given."""

    def name() -> str:
        given = flow_run.get_name()
        if given and not is_made_up(given):
            return str(given)
        return describe(flow_run.get_parameters())

    return name


def is_made_up(name: str) -> bool:
    """Return whether Prefect has made a name up, of an adjective and an animal or so."""
    words = name.split("-")
    return len(words) == 2 and all(word in _words() for word in words)


@cache
def _words() -> frozenset[str]:
    from coolname.data import config

    lists: Any = config
    return frozenset(word for each in lists.values() for word in each.get("words", ()))


def some(names: Sequence[str] | None, all_of_them: str) -> str:
    """Return a few names as text; if none are given, what that means."""
    if not names:
        return all_of_them
    if len(names) > FEW:
        return f"{len(names)} {all_of_them.removeprefix('all ')}"
    return ", ".join(names)
