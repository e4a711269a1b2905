"""Who is champion of a problem: every change by one function, with a verdict and a reason.

    decide_champion(registry, version, "Promoted", "better: ...", figures)   one change, noted
    promote("pde-darcy/3", "it runs on small machines", root, uri)           by hand
    rollback("darcy", "it fails on thin channels", root, uri)                to the one before
    champion_history("darcy", root, uri)                                     all that was decided

A champion is one of a league (`storage.tracking.model_state`): of a preset and a kind of data. The
record is append-only: who was champion when, and why, is never written over.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flows.errors import BadInput
from storage.location import Location
from storage.tracking.model_record import present_name
from storage.tracking.model_state import (
    CHALLENGER,
    CHAMPION,
    LOCKED,
    Change,
    ModelVersion,
    Tags,
    Turn,
    VerdictName,
    champion_alias,
)
from storage.tracking.registry import ModelRegistry, registered_name

TEST_SAMPLES = "test_samples"
"""The tag of a version that says which test samples its own dataset has."""
CROWNING: tuple[VerdictName, ...] = ("First", "Promoted", "ByHand", "RolledBack")
"""Verdicts that make a version the champion of its league."""


def decide_champion(
    registry: ModelRegistry,
    version: ModelVersion,
    verdict: VerdictName,
    reason: str,
    figures: Mapping[str, Any] | None = None,
    *,
    locked: str | None = None,
    tags: Tags | None = None,
    at: int | None = None,
) -> ModelVersion:
    """Note what was decided on a version, in one change, and return the version as it is then.

    It is the champion of its league from now on if the verdict is one of CROWNING, and challenges
    no more unless it needs approval. `locked` are the test samples that judge its league from now
    on; `tags` become tags of the version. `at` is when, in milliseconds since 1970; now if it is
    not said.
    """
    if not reason.strip():
        raise BadInput(f"say why {version} is {verdict}; the record keeps the reason")
    aliases: dict[str, int | None] = {CHAMPION: version.number} if verdict in CROWNING else {}
    if CHALLENGER in version.aliases and verdict != "NeedsApproval":
        aliases[CHALLENGER] = None
    change = Change(
        versions={version.number: tags} if tags else {},
        aliases=aliases,
        tags={} if locked is None else {LOCKED: locked},
        verdict=verdict,
        challenger=version.number,
        figures=figures or {},
        reason=reason,
    )
    registry.note(version.name, change if at is None else replace(change, at=at))
    return registry.find(str(version))


def promote(reference: str, why: str, root: Location, tracking_uri: str) -> ModelVersion:
    """Make the version that a text like `pde-darcy/3` names the champion of its league.

    If it was trained on other data than the champion, its test samples judge from now on, or those
    of the next judgement if they are not known: whoever promotes decides by what models are
    measured, too. The champion before it does not come back by the verdict that made it one.
    """
    registry = ModelRegistry(tracking_uri, root)
    version = registry.find(reference)
    return _crown(registry, version, "ByHand", why)


def rollback(what: str, why: str, root: Location, tracking_uri: str) -> ModelVersion:
    """Make the champion before the champion that again, and return it.

    `what` is a problem, a registered name, or one of its champions: `darcy`, `pde-darcy`,
    `pde-darcy@champion-quick`. Called again it goes one champion further back.
    """
    registry = ModelRegistry(tracking_uri, root)
    name, _, alias = what.partition("@")
    name = _named(name)
    state = registry.state(name)
    leagues = {champion_alias(each): each for each in state.champions}
    league = leagues.get(alias) if alias not in ("", CHAMPION) else state.league
    champion = None if league is None else state.champion(league)
    if champion is None:
        known = ", ".join(f"{name}@{each}" for each in sorted(leagues)) or "none"
        raise BadInput(f"{what} has no champion to take back; there are {known}")
    previous = state.previous(league)
    if previous is None:
        raise BadInput(
            f"{champion} is the first champion of {name} in {league or 'its league'}, there is "
            "none to go back to; `lsm registry promote` chooses another"
        )
    return _crown(registry, previous, "RolledBack", why)


def champion_history(what: str, root: Location, tracking_uri: str) -> list[Turn]:
    """Return all that was decided on the champions of a problem, or a name, oldest first."""
    record = ModelRegistry(tracking_uri, root).record
    name = _named(what)
    if name not in record.names():
        known = ", ".join(record.names()) or "none"
        raise BadInput(f"no models are registered as {name}; there are {known}")
    return record.turns(name)


def was_set_aside(registry: ModelRegistry, version: ModelVersion, champion: ModelVersion) -> bool:
    """Return whether a person put the champion in the place of a version that was one."""
    return any(
        turn.verdict in ("ByHand", "RolledBack")
        and (turn.before, turn.after) == (version.number, champion.number)
        for turn in registry.record.turns(version.name)
    )


def _named(text: str) -> str:
    """Return the registered name of a problem, which may have been said in full."""
    present = present_name(text)
    return present if present.startswith(registered_name("")) else registered_name(text)


def _crown(
    registry: ModelRegistry, version: ModelVersion, verdict: VerdictName, why: str
) -> ModelVersion:
    champion = registry.state(version.name).champion(version.league)
    other_data = champion and champion.tags.get("dataset") != version.tags.get("dataset")
    locked = version.tags.get(TEST_SAMPLES, "") if other_data else None
    return decide_champion(registry, version, verdict, why, locked=locked)
