"""Which models are registered, who is champion, since when and why: the store's own record.

    record = ModelRecord(root)
    version = record.add("lsm-darcy", {"identity": ..., "dataset": ...})
    record.note("lsm-darcy", Change(aliases={"champion": version.number}, reason="the first"))
    record.state("lsm-darcy").with_alias("champion")

Append-only: one small file a change, numbered, in `registered/NAME/`. A change is written in one
step and never touched again; what holds today is all changes taken together, and what held at any
time before those up to then. MLflow's registry is an echo of it.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from storage.errors import StoreUnavailable, translated
from storage.location import Location
from storage.runs.leases import Leases

Tags = Mapping[str, str]
BEGUN = "begun.json"
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a damaged file leads to."""


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    """One version of a registered model."""

    name: str
    number: int
    aliases: tuple[str, ...]
    tags: dict[str, str]

    def __str__(self) -> str:
        return f"{self.name}/{self.number}"

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "aliases": list(self.aliases)}


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became different with the models of a name, when and why."""

    versions: Mapping[int, Tags] = field(default_factory=dict)
    """Tags of versions, which are new or have these tags from now on."""
    aliases: Mapping[str, int | None] = field(default_factory=dict)
    """Which version has an alias from now on; None takes it from whichever had it."""
    tags: Tags = field(default_factory=dict)
    """Tags of the name."""
    reason: str = ""
    at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    """In milliseconds since 1970."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Change":
        """Return the change that was written as plain data."""
        return cls(
            versions={int(number): _texts(tags) for number, tags in plain["versions"].items()},
            aliases={a: None if n is None else int(n) for a, n in plain["aliases"].items()},
            tags=_texts(plain["tags"]),
            reason=str(plain["reason"]),
            at=int(plain["at"]),
        )


def _texts(plain: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in plain.items()}


@dataclass(frozen=True)
class State:
    """What is registered under a name: versions with their tags, aliases, tags of the name."""

    name: str
    versions: dict[int, dict[str, str]] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def after(self, change: Change) -> "State":
        """Return what holds after a change."""
        changed = {n: {**self.versions.get(n, {}), **tags} for n, tags in change.versions.items()}
        holders = {**self.aliases, **change.aliases}
        return State(
            self.name,
            versions=self.versions | changed,
            aliases={alias: n for alias, n in holders.items() if n is not None},
            tags={**self.tags, **change.tags},
        )

    def version(self, number: int) -> ModelVersion:
        """Return the version of a number that there is."""
        aliases = tuple(sorted(a for a, holder in self.aliases.items() if holder == number))
        tags = self.versions[number]
        return ModelVersion(name=self.name, number=number, aliases=aliases, tags=tags)

    def newest_first(self) -> list[ModelVersion]:
        """Return all versions."""
        return [self.version(number) for number in sorted(self.versions, reverse=True)]

    def with_alias(self, alias: str) -> ModelVersion | None:
        """Return the version that has an alias, or None."""
        return self.version(self.aliases[alias]) if alias in self.aliases else None

    def of_run(self, identity: str) -> ModelVersion | None:
        """Return the version that was made of a run, or None."""
        own = (n for n, tags in self.versions.items() if tags.get("identity") == identity)
        return next(map(self.version, own), None)


class ModelRecord:
    """The record in one store."""

    def __init__(self, root: Location) -> None:
        self._folder = root / "registered"
        self._claims = Leases(root / "claims")

    def names(self) -> list[str]:
        """Return the names of the registered models."""
        return [name for name in self._folder.names() if "." not in name]

    @property
    def is_begun(self) -> bool:
        """Return whether all that was registered before there was this record is in it."""
        return (self._folder / BEGUN).exists()

    def begin(self, models: Mapping[str, Change]) -> None:
        """Take in, by name, what was registered before; done once, and whole or not at all."""
        for name, change in models.items():
            if not self._files(name):
                self.note(name, change)
        (self._folder / BEGUN).write_bytes(b"{}")

    def history(self, name: str) -> list[Change]:
        """Return all changes of a name, oldest first."""
        return [self._change(name, file) for file in self._files(name)]

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
            number = known.number if known else max(state.versions, default=0) + 1
            change = Change(versions={number: tags}, reason="registered")
            return self._append(state, change).version(number)

    def note(self, name: str, change: Change) -> None:
        """Add a change, unless everything is so already."""
        with self._claims.hold(f"registered-{name}"):
            self._append(self.state(name), change)

    def _append(self, before: State, change: Change) -> State:
        """Write a change, unless everything is so already; return what holds after it."""
        after = before.after(change)
        if after != before:
            number = len(self._files(before.name)) + 1
            place = self._folder / before.name / f"{number:06d}.json"
            place.write_bytes(json.dumps(asdict(change), indent=1).encode())
        return after

    def _files(self, name: str) -> list[str]:
        names = (self._folder / name).names()
        return [each for each in names if each.endswith(".json") and each[0] != "."]

    def _change(self, name: str, file: str) -> Change:
        place = self._folder / name / file

        def ours(error: Exception) -> StoreUnavailable:
            return StoreUnavailable(
                f"{place} is no record of registered models: {error}; bring it back from a copy"
            )

        with translated(*UNREADABLE, into=ours):
            return Change.from_plain(json.loads(place.read_bytes()))
