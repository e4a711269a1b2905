"""What the Prefect server does by itself, declared in `infra/automations.yaml`."""

import json
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any

DECLARED = Path("infra/automations.yaml")


def declare_automations(api: str, declared: Path = DECLARED) -> None:
    """Make or bring up to date the automations of a file; those of other names are left alone."""
    # PyYAML comes with Prefect, and without types.
    wanted = import_module("yaml").safe_load(declared.read_text(encoding="utf-8"))["automations"]
    names = {"automations": {"name": {"any_": [each["name"] for each in wanted]}}}
    known = {each["name"]: each["id"] for each in _ask(f"{api}/automations/filter", "POST", names)}
    for each in wanted:
        if each["name"] in known:
            _ask(f"{api}/automations/{known[each['name']]}", "PUT", each)
        else:
            _ask(f"{api}/automations/", "POST", each)


def _ask(url: str, method: str, content: Any) -> Any:
    request = urllib.request.Request(
        url,
        method=method,
        data=json.dumps(content).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = answer.read()
    return json.loads(said) if said else None
