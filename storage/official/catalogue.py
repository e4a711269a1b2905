"""The official data files of the eight benchmarks: where they are, what they hold, how it is split.

The table is `catalogue.json`. Shapes, axes and splits follow the code released with the FNO,
Geo-FNO and LSM papers. Addresses could only be checked against the places that publish them, not
tried: the first download of a file without a known sha256 fixes it in the store. `confirm` in the
addresses of Google Drive skips the page that warns of large files; a file that was fetched too
often today still answers with a page, which the download recognises.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter, ValidationError

from storage.official.benchmark import PublishedBenchmark


@cache
def published_benchmarks() -> dict[str, PublishedBenchmark]:
    """Return what is published of every benchmark, by name; the table is read once."""
    text = (files("storage.official") / "catalogue.json").read_text(encoding="utf-8")
    return checked_catalogue(json.loads(text))


def checked_catalogue(table: Mapping[str, Mapping[str, Any]]) -> dict[str, PublishedBenchmark]:
    """Return the benchmarks of a table; ValueError says the place of a wrong entry."""
    named = {name: {"name": name, **entry} for name, entry in table.items()}
    try:
        return TypeAdapter(dict[str, PublishedBenchmark]).validate_python(named)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"the catalogue of official files is wrong at {place}: {first['msg']}, got "
            f"{first['input']!r}"
        ) from error
