"""Which models are registered, who is champion, since when and why: the store's own record.

    record = ModelRecord(root)
    version = record.add("pde-darcy", {"identity": ..., "preset": ..., "dataset": ...})
    record.note("pde-darcy", Change(aliases={"champion": version.number}, reason="the first"))
    record.state("pde-darcy").champion()

Append-only: one small file a change, numbered, in `registered/NAME/`. A change is written in one
step and never touched again; what holds today is all changes taken together, and what held at any
time before those up to then. MLflow's registry is an echo of it.

Names were `lsm-BENCHMARK` once. What was written then stays where it is, and comes first in the
history of `pde-BENCHMARK`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import reduce

from storage.errors import StoreUnavailable, translated
from storage.location import Location
from storage.runs.leases import Leases
from storage.tracking.model_state import Change, ModelVersion, State, Tags, Turn, turns

PREFIX, EARLIER_PREFIX = "pde-", "lsm-"
BEGUN = "begun.json"
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a damaged file leads to."""


def earlier_name(name: str) -> str:
    """Return what a name was before names had the prefix that they have."""
    return f"{EARLIER_PREFIX}{name.removeprefix(PREFIX)}"


def present_name(name: str) -> str:
    """Return what a name is today."""
    bare = name.removeprefix(EARLIER_PREFIX)
    return name if bare == name else f"{PREFIX}{bare}"


class ModelRecord:
    """The record in one store."""

    def __init__(self, root: Location) -> None:
        self._folder = root / "registered"
        self._claims = Leases(root / "claims")

    def names(self) -> list[str]:
        """Return the names of the registered models."""
        return sorted({present_name(each) for each in self._folder.names() if "." not in each})

    @property
    def is_begun(self) -> bool:
        """Return whether all that was registered before there was this record is in it."""
        return (self._folder / BEGUN).exists()

    def begin(self, models: Mapping[str, Change]) -> None:
        """Take in, by name, what was registered before; done once, and whole or not at all."""
        for name, change in models.items():
            if not self._places(name):
                self.note(name, change)
        (self._folder / BEGUN).write_bytes(b"{}")

    def history(self, name: str) -> list[Change]:
        """Return all changes of a name, oldest first."""
        return [_read(place) for place in self._places(name)]

    def turns(self, name: str) -> list[Turn]:
        """Return all that was decided on the champions of a name, oldest first."""
        return list(turns(name, self.history(name)))

    def state(self, name: str) -> State:
        """Return what is registered under a name today."""
        return reduce(State.after, self.history(name), State(name))

    def add(self, name: str, tags: Tags) -> ModelVersion:
        """Note a version of these tags, one of which is the run's `identity`, and return it.

        The model of a run is noted once: later calls bring the tags of its version up to date.
        """
        with self._claims.hold(f"registered-{name}"):
            state = self.state(name)
            known = state.of_run(tags["identity"])
            number = known.number if known else state.n_numbers + 1
            change = Change(versions={number: tags}, reason="registered")
            return self._append(state, change).version(number)

    def note(self, name: str, change: Change) -> None:
        """Add a change, unless everything is so already."""
        with self._claims.hold(f"registered-{name}"):
            self._append(self.state(name), change)

    def _append(self, before: State, change: Change) -> State:
        """Write a change, unless everything is so already; return what holds after it."""
        used = before.in_use & set(change.retired)
        if used:
            raise ValueError(f"{before.name}/{min(used)} is in use and stays registered")
        after, places = before.after(change), self._places(before.name)
        if after == before and (change.verdict is None or _is_last(change, places)):
            return after
        place = self._folder / before.name / f"{len(places) + 1:06d}.json"
        place.write_bytes(json.dumps(asdict(change), indent=1).encode())
        return after

    def _places(self, name: str) -> list[Location]:
        """Return the files of a name, oldest first."""
        return [
            folder / file
            for folder in (self._folder / earlier_name(name), self._folder / name)
            for file in folder.names()
            if file.endswith(".json") and file[0] != "."
        ]


def _is_last(change: Change, places: list[Location]) -> bool:
    """Return whether the same was noted just before: a verdict is the same if it is given again."""
    return bool(places) and replace(_read(places[-1]), at=change.at) == change


def _read(place: Location) -> Change:
    def ours(error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"{place} is no record of registered models: {error}; bring it back from a copy"
        )

    with translated(*UNREADABLE, into=ours):
        return Change.from_plain(json.loads(place.read_bytes()))
