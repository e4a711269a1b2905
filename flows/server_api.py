"""The Prefect server asked over HTTP, since importing Prefect takes seconds."""

import json
import urllib.request
from base64 import b64encode
from typing import Any


def ask(url: str, method: str = "GET", content: Any = None, credentials: str | None = None) -> Any:
    """Return the answer to a request; the credentials, if it asks for some, are `name:password`."""
    headers = {"Content-Type": "application/json"}
    if credentials:
        headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, method=method, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        said = answer.read()
    return json.loads(said) if said else None
