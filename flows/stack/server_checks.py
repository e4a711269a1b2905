"""Whether the servers that an installation relies on are there, and are the right ones."""

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import httpx

from flows.settings import POOL, Settings
from flows.stack.deployment import (
    AUTOMATIONS,
    DEPLOYMENTS,
    PAGE,
    declared_automations,
    has_pool,
    prefect_client,
)
from storage.credentials import without_credentials

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

ANSWER_SECONDS = 5.0
REFUSALS = (401, 403)

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what to do if it is not well."""

    subject: str
    state: State
    text: str

    def line(self) -> str:
        """Return the line for people."""
        return f"{self.state:<8} {self.subject:<12} {self.text}"


class PrefectServer:
    """The Prefect server of an installation, as its client sees it; to be closed."""

    def __init__(self, api: str, environment: Mapping[str, str]) -> None:
        self.api = api
        self.answers = False
        self._environment = environment
        self._opened = ExitStack()

    @cached_property
    def client(self) -> "SyncPrefectClient":
        """Return the client; a check makes it, and a broken Prefect is that check's problem."""
        return self._opened.enter_context(prefect_client(self.api, self._environment))

    def close(self) -> None:
        """Close the connections."""
        self._opened.close()

    def check_prefect(self) -> Finding:
        """Check that the server answers and is of this version; the other checks need that."""
        try:
            found = self.client.api_version()
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in REFUSALS:
                raise
            text = f"{self.api} asks for a password; set PREFECT_API_AUTH_STRING"
            return Finding("prefect", "problem", text)
        except httpx.TransportError:
            advice = "commands start one of their own; `lsm stack up` starts one that stays"
            return Finding("prefect", "warning", f"nothing answers at {self.api}; {advice}")
        self.answers = True
        own = version("prefect")
        if found != own:
            text = f"the server at {self.api} is {found}, this is {own}; install the same on both"
            return Finding("prefect", "problem", text)
        return Finding("prefect", "ok", f"{self.api} answers, version {found}")

    def check_worker(self) -> Finding:
        """Check that somebody takes runs out of the pool."""
        if not self.answers:
            return _not_looked_for("worker")
        if not has_pool(self.client):
            return Finding("worker", "problem", f"there is no pool {POOL}; `lsm stack up` makes it")
        workers = self.client.read_workers_for_work_pool(POOL)
        alive = [each for each in workers if each.status == "ONLINE"]
        if alive:
            return Finding("worker", "ok", f"{len(alive)} in the pool {POOL}")
        advice = f"`prefect worker start --pool {POOL}`, or `lsm stack up`"
        return Finding("worker", "problem", f"no worker of the pool {POOL} is alive; {advice}")

    def check_deployments(self) -> Finding:
        """Check that every deployment of prefect.yaml is declared on the server."""
        import yaml

        if not self.answers:
            return _not_looked_for("deployments")
        if not DEPLOYMENTS.is_file():
            return Finding("deployments", "problem", _absent(DEPLOYMENTS))
        declared = yaml.safe_load(DEPLOYMENTS.read_text()).get("deployments", [])
        wanted = [each["name"] for each in declared]
        there = [each.name for each in self.client.read_deployments(limit=PAGE)]
        missing = sorted({name for name in wanted if wanted.count(name) > there.count(name)})
        if missing:
            advice = "`lsm stack deploy` declares them"
            return Finding("deployments", "problem", f"{', '.join(missing)} missing; {advice}")
        return Finding("deployments", "ok", f"all {len(wanted)} of prefect.yaml are declared")

    def check_automations(self) -> Finding:
        """Check that what the server does when a run dies is declared on it, and switched on."""
        if not self.answers:
            return _not_looked_for("automations")
        if not AUTOMATIONS.is_file():
            return Finding("automations", "problem", _absent(AUTOMATIONS))
        wanted = [each.name for each in declared_automations()]
        there = {each.name: each.enabled for each in self.client.read_automations()}
        missing = [name for name in wanted if name not in there]
        if missing:
            advice = "runs that die stay as they are; `lsm stack deploy` declares them"
            return Finding("automations", "problem", f"{', '.join(missing)} missing; {advice}")
        off = [name for name in wanted if not there[name]]
        if off:
            advice = "`prefect automation resume` with the name switches one on"
            return Finding("automations", "warning", f"{', '.join(off)} switched off; {advice}")
        text = f"all {len(wanted)} of {AUTOMATIONS} are declared and on"
        return Finding("automations", "ok", text)


def _not_looked_for(subject: str) -> Finding:
    return Finding(subject, "warning", "not looked for, since Prefect does not answer")


def _absent(path: Path) -> str:
    return (
        f"there is no {path} in {Path.cwd()}, so nobody knows what the server should have; "
        "`lsm doctor` in the project's folder compares it"
    )


def check_mlflow(settings: Settings, environment: Mapping[str, str]) -> Finding:
    """Check that the tracking store answers."""
    uri = settings.tracking_uri
    shown = without_credentials(uri)
    if not uri.startswith(("http://", "https://")):
        return _check_database(uri, shown)
    name = environment.get("MLFLOW_TRACKING_USERNAME")
    password = environment.get("MLFLOW_TRACKING_PASSWORD")
    login = (name, password) if name and password else None
    try:
        answer = httpx.get(f"{uri.rstrip('/')}/version", auth=login, timeout=ANSWER_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        advice = "runs go on and keep what they record; start it, then `lsm runs sync`"
        return Finding("mlflow", "problem", f"{shown} does not answer ({error}); {advice}")
    if answer.status_code in REFUSALS:
        advice = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        return Finding("mlflow", "problem", f"{shown} refuses ({answer.status_code}); {advice}")
    found, own = answer.raise_for_status().text.strip(), version("mlflow")
    if found != own:
        return Finding("mlflow", "warning", f"the server at {shown} is {found}, this is {own}")
    return Finding("mlflow", "ok", f"{shown} answers, version {found}")


def check_dask(address: str | None) -> Finding:
    """Check that the scheduler answers, if one is set."""
    if address is None:
        return Finding("dask", "ok", "not used; data is generated on this machine")
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 8786), timeout=3):
            return Finding("dask", "ok", f"{address} answers")
    except OSError as error:
        text = f"no scheduler answers at {address} ({error}); check LSM_DASK"
        return Finding("dask", "problem", text)


def _check_database(uri: str, shown: str) -> Finding:
    import sqlalchemy

    path = Path(sqlalchemy.make_url(uri).database or "")
    if uri.startswith("sqlite") and not path.exists():
        return Finding("mlflow", "ok", f"{shown} is made at the first run")
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as connection:
            count = connection.execute(sqlalchemy.text("select count(*) from runs")).scalar()
    except sqlalchemy.exc.SQLAlchemyError as error:
        said = without_credentials(str(error.__cause__ or error)).partition("\n")[0]
        return Finding("mlflow", "problem", f"{shown} cannot be used ({said})")
    return Finding("mlflow", "ok", f"{shown} answers, {count} runs")
