"""What the Prefect server is told of the flows: the pool, the deployments, the automations.

What an operator has changed on the server is kept: a pool that is paused or limited, a deployment
or a schedule that is paused (prefect.yaml does not say whether one is active), an automation that
is off.
"""

import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from flows.automations import declare_automations
from flows.errors import ServiceFailed
from flows.server_api import ask
from flows.settings import POOL, Settings


def deploy(settings: Settings, environment: Mapping[str, str]) -> None:
    """Make the pool, declare deployments and automations; what is there is brought up to date.

    The server is the one at PREFECT_API_URL, here or elsewhere.
    """
    environment = {**environment, "PREFECT_API_URL": settings.prefect_api}
    credentials = environment.get("PREFECT_API_AUTH_STRING")
    try:
        if not _has_pool(settings.prefect_api, credentials):
            _make_pool(settings.prefect_api, credentials, environment)
        with _pauses_kept(settings.prefect_api, credentials):
            _prefect(environment, "--no-prompt", "deploy", "--all")
        declare_automations(settings.prefect_api, credentials)
    except OSError as error:
        raise ServiceFailed(
            f"the server at {settings.prefect_api} cannot be told of the flows: {error}"
        ) from error


def _has_pool(api: str, credentials: str | None) -> bool:
    try:
        ask(f"{api}/work_pools/{POOL}", credentials=credentials)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True


def _make_pool(api: str, credentials: str | None, environment: Mapping[str, str]) -> None:
    try:
        # Never over one that is there: its pause and its limit would be gone.
        _prefect(environment, "work-pool", "create", POOL, "--type", "process")
    except ServiceFailed:
        if not _has_pool(api, credentials):  # another may have made it just now
            raise


@contextmanager
def _pauses_kept(api: str, credentials: str | None) -> Iterator[None]:
    """Pause deployments again that are paused now: declaring one switches it on."""
    there = ask(f"{api}/deployments/filter", "POST", {}, credentials)
    try:
        yield
    finally:
        for deployment in (each for each in there if each["paused"]):
            ask(f"{api}/deployments/{deployment['id']}/pause_deployment", "POST", {}, credentials)


def _prefect(environment: Mapping[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise ServiceFailed(f"`prefect {' '.join(arguments)}` failed: {said[-800:]}")
