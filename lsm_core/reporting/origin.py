"""Where the samples of a result come from."""

from collections.abc import Iterable, Mapping
from typing import Any

DATA = {
    "generated": "of our own solvers",
    "official": "the published files",
    "exported": "files that were written from data of our own solvers as the published ones are",
}
"""What the data of each origin are."""


def origin_of(result: Mapping[str, Any]) -> str:
    """Return the origin of a result's data; older results, which do not say, are of solvers."""
    return str(result.get("origin", "generated"))


def marked(name: str, origin: str) -> str:
    """Return a name that tells official data from ours, which need no mark."""
    return name if origin == "generated" else f"{name}, {origin} data"


def told_data(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a sentence on what the data of some results are."""
    found = sorted({origin_of(result) for result in results})
    return f"The data are {' and '.join(DATA[origin] for origin in found)}"
