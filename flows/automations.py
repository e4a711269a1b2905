"""What the Prefect server does by itself, declared in `infra/automations.yaml`."""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from flows.server_api import ask

DECLARED = Path("infra/automations.yaml")


def declare_automations(
    api: str, credentials: str | None = None, declared: Path = DECLARED
) -> None:
    """Make or bring up to date the automations of a file; those of other names are left alone.

    One that is there stays switched on or off, as an operator left it.
    """
    wanted = declared_automations(declared)
    names = {"automations": {"name": {"any_": [each["name"] for each in wanted]}}}
    tell = partial(ask, credentials=credentials)
    known = {each["name"]: each for each in tell(f"{api}/automations/filter", "POST", names)}
    for each in wanted:
        there = known.get(each["name"])
        if there is None:
            tell(f"{api}/automations/", "POST", each)
            continue
        kept = {**each, "enabled": there["enabled"]}
        # One that is written again forgets the events it has seen: a run that fell silent before
        # would never be missed.
        if not _holds(there, kept):
            tell(f"{api}/automations/{there['id']}", "PUT", kept)


def _holds(there: Any, wanted: Any) -> bool:
    """Return whether something has all that is wanted, whatever else it has; names in any order."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return all(key in there and _holds(there[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(there, list):
        if all(isinstance(each, str) for each in (*wanted, *there)):
            return sorted(there) == sorted(wanted)
        pairs = zip(there, wanted, strict=False)
        return len(there) == len(wanted) and all(_holds(*pair) for pair in pairs)
    return bool(there == wanted)


def declared_automations(declared: Path = DECLARED) -> list[dict[str, Any]]:
    """Return the automations of a file."""
    # PyYAML comes with Prefect, and without types.
    found = import_module("yaml").safe_load(declared.read_text(encoding="utf-8"))
    return list(found["automations"])
