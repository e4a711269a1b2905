"""When a flow is tried again: the server decides, in a process of its own, and is told here."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.engine import tries
from flows.errors import BadInput, CellsFailed

REPOSITORY = Path(__file__).parents[3]
SCRIPT = """
import os
from contextlib import suppress
from flows.engine.own_server import prefect_api
from flows.settings import Settings

tries = []
with prefect_api(Settings.from_environment()):
    from prefect import flow
    from flows.engine.tries import tried_once_more
    from flows.errors import CellsFailed

    @flow(retries=1, retry_delay_seconds=0)
    @tried_once_more
    def failing(how: str) -> None:
        '''Fail.

        Args:
            how: With which error.

        '''
        tries.append(how)
        raise {"network": ConnectionError, "cells": CellsFailed}[how](how)

    with suppress(ConnectionError):
        failing("network")
    with suppress(CellsFailed):
        failing("cells")
    print(tries, failing.parameters.properties["how"]["description"], flush=True)
os._exit(0)  # what Prefect still wants to send has no server any more
"""


def test_the_server_is_told_of_errors_that_would_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(tries, "_give_up", lambda: told.append("given up"))

    def failing(error: Exception) -> None:
        raise error

    body = tries.tried_once_more(failing)
    assert inspect.signature(body) == inspect.signature(failing)
    for error, n_told in (
        (ConnectionError("away"), 0),
        (CellsFailed("two"), 1),
        (BadInput("x"), 2),
    ):
        with pytest.raises(type(error)):
            body(error)
        assert len(told) == n_told


@pytest.mark.slow
def test_what_may_mend_itself_is_tried_once_more_and_what_cannot_is_not(tmp_path: Path) -> None:
    ours = ("LSM_", "PREFECT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    settings = {"LSM_STORE": str(tmp_path), "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=REPOSITORY,
        env={**kept, **settings, "DO_NOT_TRACK": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['network', 'network', 'cells'] With which error.\n", done.stderr
