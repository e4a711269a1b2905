"""What the Prefect server does by itself, declared in `infra/automations.yaml`."""

import json
import urllib.request
from base64 import b64encode
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

DECLARED = Path("infra/automations.yaml")


def declare_automations(
    api: str, credentials: str | None = None, declared: Path = DECLARED
) -> None:
    """Make or bring up to date the automations of a file; those of other names are left alone.

    The credentials of a server that asks for some are `name:password`.
    """
    # PyYAML comes with Prefect, and without types.
    wanted = import_module("yaml").safe_load(declared.read_text(encoding="utf-8"))["automations"]
    names = {"automations": {"name": {"any_": [each["name"] for each in wanted]}}}
    ask = partial(_ask, credentials=credentials)
    known = {each["name"]: each["id"] for each in ask(f"{api}/automations/filter", "POST", names)}
    for each in wanted:
        if each["name"] in known:
            ask(f"{api}/automations/{known[each['name']]}", "PUT", each)
        else:
            ask(f"{api}/automations/", "POST", each)


def _ask(url: str, method: str, content: Any, *, credentials: str | None) -> Any:
    headers = {"Content-Type": "application/json"}
    if credentials:
        headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    request = urllib.request.Request(
        url,
        method=method,
        data=json.dumps(content).encode(),
        headers=headers,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = answer.read()
    return json.loads(said) if said else None
