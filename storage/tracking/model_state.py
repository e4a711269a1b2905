"""What is registered under a name: versions, champions, and the changes that made them so.

Models are judged against each other within a league, those of one preset and one kind of data, so
that a model of a laptop never bars one of the paper's size. Each league has a champion, with the
alias `champion-LEAGUE`; `champion` is that of the largest league, and `previous` the one before it.
Both follow from the changes, so that they cannot disagree with them.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Tags = Mapping[str, str]
VerdictName = Literal[
    "First", "Promoted", "Kept", "NeedsApproval", "Refused", "ByHand", "RolledBack"
]
"""What was decided: the first four by figures, `Refused` and the last two by a person."""
CHAMPION, PREVIOUS, CHALLENGER = "champion", "previous", "challenger"
LOCKED = "locked_test_samples"
"""The tag of a name that says by which test samples a league is judged, from a change on."""
SIZES = ("smoke", "quick", "matched", "night", "paper", "release")
"""Presets, the smallest first; one that is none of them is smaller than all."""
ORIGINS = ("generated", "exported", "official")
_ALIAS = re.compile(r"champion|challenger")


def league_of(tags: Tags) -> str:
    """Return the league of a version: its preset, and its data unless they are generated."""
    origin = tags.get("origin", ORIGINS[0])
    return tags.get("preset", "") + ("" if origin == ORIGINS[0] else f"-{origin}")


def league_size(league: str) -> tuple[int, int]:
    """Return what leagues are ordered by, the smallest first: preset, then kind of data."""
    preset, _, origin = league.partition("-")
    return (
        SIZES.index(preset) if preset in SIZES else -1,
        ORIGINS.index(origin) if origin in ORIGINS else 0,
    )


def champion_alias(league: str) -> str:
    """Return the alias of the champion of a league."""
    return f"{CHAMPION}-{league}" if league else CHAMPION


REFERENCE = re.compile(
    r"(?P<name>(pde|lsm)-[a-z][a-z0-9_-]*)(@(?P<alias>[a-z]+(-[a-z]+)*)|/(?P<number>[1-9][0-9]*))"
)
"""How a version is named: by an alias or by its number."""


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    """One version of a registered model."""

    name: str
    number: int
    aliases: tuple[str, ...]
    tags: dict[str, str]

    def __str__(self) -> str:
        return f"{self.name}/{self.number}"

    @property
    def league(self) -> str:
        """Return in which league it is judged."""
        return league_of(self.tags)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "aliases": list(self.aliases)}


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became different with the models of a name, when and why."""

    versions: Mapping[int, Tags] = field(default_factory=dict)
    """Tags of versions, which are new or have these tags from now on."""
    aliases: Mapping[str, int | None] = field(default_factory=dict)
    """Which version is `champion` of its league or `challenger` now; None: no one challenges."""
    tags: Tags = field(default_factory=dict)
    """Tags of the name."""
    retired: tuple[int, ...] = ()
    """Versions that are no longer registered; their numbers are not used again."""
    verdict: VerdictName | None = None
    """What was decided, if anything was: noted also if it changes nothing."""
    challenger: int | None = None
    """The version on which it was decided."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What the verdict rests on, as plain data."""
    reason: str = ""
    at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    """In milliseconds since 1970."""

    def __post_init__(self) -> None:
        unknown = [alias for alias in self.aliases if not _ALIAS.fullmatch(alias)]
        if unknown:
            raise ValueError(f"an alias is one of champion, challenger, not {', '.join(unknown)}")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Change":
        """Return the change that was written as plain data, by this version or an older one."""
        verdict = plain.get("verdict")
        if verdict is not None and verdict not in get_args(VerdictName):
            raise ValueError(f"its verdict is {verdict!r}")
        challenger = plain.get("challenger")
        return cls(
            versions={int(number): _texts(tags) for number, tags in plain["versions"].items()},
            aliases={a: None if n is None else int(n) for a, n in plain["aliases"].items()},
            tags=_texts(plain["tags"]),
            retired=tuple(int(number) for number in plain.get("retired", ())),
            verdict=verdict,
            challenger=None if challenger is None else int(challenger),
            figures=dict(plain.get("figures", {})),
            reason=str(plain["reason"]),
            at=int(plain["at"]),
        )


def _texts(plain: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in plain.items()}


@dataclass(frozen=True)
class State:
    """What is registered under a name: versions with their tags, champions, tags of the name."""

    name: str
    versions: dict[int, dict[str, str]] = field(default_factory=dict)
    champions: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By league, who was champion, one after the other; a rollback takes off the last, who is."""
    challenger: int | None = None
    locked: dict[str, str] = field(default_factory=dict)
    """By league, the test samples that judge."""
    tags: dict[str, str] = field(default_factory=dict)
    n_numbers: int = 0
    """How many versions there ever were."""

    def after(self, change: Change) -> "State":
        """Return what holds after a change."""
        changed = {n: {**self.versions.get(n, {}), **tags} for n, tags in change.versions.items()}
        versions = self.versions | changed
        champions, locked, tags = dict(self.champions), dict(self.locked), {**change.tags}
        champion = change.aliases.get(CHAMPION)
        league = self._largest(champions)
        if champion is not None:
            league = league_of(versions.get(champion, {}))
            champions[league] = _followed(champions.get(league, ()), champion, change.verdict)
        if LOCKED in tags:
            judged = versions.get(change.challenger or champion or 0)
            locked[league if judged is None else league_of(judged)] = tags.pop(LOCKED)
        return State(
            self.name,
            versions={n: kept for n, kept in versions.items() if n not in change.retired},
            champions={
                each: tuple(n for n in held if n not in change.retired)
                for each, held in champions.items()
            },
            challenger=change.aliases.get(CHALLENGER, self.challenger),
            locked=locked,
            tags={**self.tags, **tags},
            n_numbers=max(self.n_numbers, *versions, 0),
        )

    @property
    def league(self) -> str:
        """Return the largest league that has a champion."""
        return self._largest(self.champions)

    @staticmethod
    def _largest(champions: Iterable[str]) -> str:
        return max(champions, key=league_size, default="")

    @property
    def aliases(self) -> dict[str, int]:
        """Return which version has which alias."""
        found = {champion_alias(each): held[-1] for each, held in self.champions.items()}
        held = self.champions.get(self.league, ())
        ends = {CHAMPION: held[-1:], PREVIOUS: held[-2:-1]}
        found |= {alias: numbers[0] for alias, numbers in ends.items() if numbers}
        return found | ({} if self.challenger is None else {CHALLENGER: self.challenger})

    @property
    def retired(self) -> set[int]:
        """Return the numbers of versions that are no longer registered."""
        return set(range(1, self.n_numbers + 1)) - set(self.versions)

    @property
    def in_use(self) -> set[int]:
        """Return the versions that must stay: champions, those before them, the challenger."""
        champions = {number for held in self.champions.values() for number in held[-2:]}
        return champions if self.challenger is None else {*champions, self.challenger}

    def champion(self, league: str | None = None) -> ModelVersion | None:
        """Return the champion of a league, of the largest one if none is named, or None."""
        held = self.champions.get(self.league if league is None else league)
        return self.version(held[-1]) if held else None

    def previous(self, league: str | None = None) -> ModelVersion | None:
        """Return who was champion of a league before its champion, or None."""
        held = self.champions.get(self.league if league is None else league, ())
        return self.version(held[-2]) if len(held) > 1 else None

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
        number = self.aliases.get(alias)
        return None if number is None else self.version(number)

    def of_run(self, identity: str) -> ModelVersion | None:
        """Return the version that was made of a run, or None."""
        own = (n for n, tags in self.versions.items() if tags.get("identity") == identity)
        return next(map(self.version, own), None)


def _followed(held: tuple[int, ...], champion: int, verdict: VerdictName | None) -> tuple[int, ...]:
    """Return who was champion, one after the other, when another one is."""
    if verdict == "RolledBack" and held[-2:-1] == (champion,):
        return held[:-1]
    return held if held[-1:] == (champion,) else (*held, champion)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A verdict, or a change of champion: when, in which league, and why."""

    at: int
    """In milliseconds since 1970."""
    league: str
    verdict: VerdictName
    before: int | None
    """The version that was champion."""
    after: int | None
    """The version that is champion since."""
    challenger: int | None
    """The version on which it was decided."""
    reason: str
    figures: Mapping[str, Any]

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "figures": dict(self.figures)}


def turns(name: str, changes: Iterable[Change]) -> Iterator[Turn]:
    """Yield all that was decided on the champions of a name, oldest first."""
    state = State(name)
    for change in changes:
        before, state = state, state.after(change)
        champion = change.aliases.get(CHAMPION)
        subject = change.challenger if champion is None else champion
        if subject is None or (change.verdict is None and champion is None):
            continue
        league = league_of(state.versions.get(subject) or before.versions.get(subject, {}))
        was, is_now = (each.champions.get(league, (None,))[-1] for each in (before, state))
        if was == is_now and change.verdict is None:
            continue
        yield Turn(
            at=change.at,
            league=league,
            verdict=change.verdict or _supposed(change, was),
            before=was,
            after=is_now,
            challenger=subject,
            reason=change.reason,
            figures=change.figures,
        )


def _supposed(change: Change, before: int | None) -> VerdictName:
    """Return what was decided by a change of before verdicts were noted."""
    if before is None:
        return "First"
    return "ByHand" if change.reason == "promoted by hand" else "Promoted"


def is_reference(text: str) -> bool:
    """Return whether a text names a version, like `pde-darcy@champion` or `pde-darcy/3`."""
    return REFERENCE.fullmatch(text) is not None
