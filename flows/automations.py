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
        else:
            kept = {**each, "enabled": there["enabled"]}
            tell(f"{api}/automations/{there['id']}", "PUT", kept)


def declared_automations(declared: Path = DECLARED) -> list[dict[str, Any]]:
    """Return the automations of a file."""
    # PyYAML comes with Prefect, and without types.
    found = import_module("yaml").safe_load(declared.read_text(encoding="utf-8"))
    return list(found["automations"])
