"""Whether the servers that an installation relies on are there, and are the right ones."""

import base64
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from flows.automations import DECLARED, declared_automations
from flows.settings import POOL, PREFECT_PORT, Settings
from storage.run_journal import without_credentials

DEPLOYMENTS = Path("prefect.yaml")
"""What `lsm stack deploy` reads, in the folder that is worked in, as it does."""

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


class Servers:
    """Prefect and MLflow, asked over HTTP; what they say of the time is kept."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self.dates: dict[str, datetime] = {}
        self._prefect_login = environment.get("PREFECT_API_AUTH_STRING")
        name = environment.get("MLFLOW_TRACKING_USERNAME")
        password = environment.get("MLFLOW_TRACKING_PASSWORD")
        self._mlflow_login = f"{name}:{password}" if name and password else None

    def check_prefect(self) -> Finding:
        """Check that the server answers and is of this version."""
        api = self.settings.prefect_api
        try:
            found = self._ask("Prefect", f"{api}/admin/version", self._prefect_login)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                advice = "set PREFECT_API_AUTH_STRING"
                return Finding("prefect", "problem", f"{api} asks for a password; {advice}")
            raise
        except OSError:
            advice = "commands start one of their own; `lsm stack up` starts one that stays"
            return Finding("prefect", "warning", f"nothing answers at {api}; {advice}")
        own = version("prefect")
        if found != own:
            text = f"the server at {api} is {found}, this is {own}; install the same on both"
            return Finding("prefect", "problem", text)
        return Finding("prefect", "ok", f"{api} answers, version {found}")

    def check_worker(self) -> Finding:
        """Check that somebody takes runs out of the pool."""
        api = self.settings.prefect_api
        if "Prefect" not in self.dates:
            return Finding("worker", "warning", "not looked for, since Prefect does not answer")
        try:
            workers = self._ask(
                "Prefect", f"{api}/work_pools/{POOL}/workers/filter", self._prefect_login, {}
            )
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return Finding("worker", "problem", f"there is no pool {POOL}; `lsm stack up` makes it")
        alive = [each["name"] for each in workers if each.get("status") == "ONLINE"]
        if alive:
            return Finding("worker", "ok", f"{len(alive)} in the pool {POOL}")
        advice = f"`prefect worker start --pool {POOL}`, or `lsm stack up`"
        return Finding("worker", "problem", f"no worker of the pool {POOL} is alive; {advice}")

    def check_deployments(self) -> Finding:
        """Check that every deployment of prefect.yaml is declared on the server."""
        if "Prefect" not in self.dates:
            text = "not looked for, since Prefect does not answer"
            return Finding("deployments", "warning", text)
        if not DEPLOYMENTS.is_file():
            return Finding("deployments", "problem", _absent(DEPLOYMENTS))
        url = f"{self.settings.prefect_api}/deployments/filter"
        there = [each["name"] for each in self._ask("Prefect", url, self._prefect_login, {})]
        wanted = _declared(DEPLOYMENTS)
        missing = sorted({name for name in wanted if wanted.count(name) > there.count(name)})
        if missing:
            advice = "`lsm stack deploy` declares them"
            return Finding("deployments", "problem", f"{', '.join(missing)} missing; {advice}")
        return Finding("deployments", "ok", f"all {len(wanted)} of prefect.yaml are declared")

    def check_automations(self) -> Finding:
        """Check that what the server does when a run dies is declared on it, and switched on."""
        if "Prefect" not in self.dates:
            text = "not looked for, since Prefect does not answer"
            return Finding("automations", "warning", text)
        if not DECLARED.is_file():
            return Finding("automations", "problem", _absent(DECLARED))
        wanted = [each["name"] for each in declared_automations(DECLARED)]
        url = f"{self.settings.prefect_api}/automations/filter"
        names = {"automations": {"name": {"any_": wanted}}}
        found = self._ask("Prefect", url, self._prefect_login, names)
        there = {each["name"]: each["enabled"] for each in found}
        missing = [name for name in wanted if name not in there]
        if missing:
            advice = "runs that die stay as they are; `lsm stack deploy` declares them"
            return Finding("automations", "problem", f"{', '.join(missing)} missing; {advice}")
        off = [name for name in wanted if not there[name]]
        if off:
            advice = "`prefect automation resume` with the name switches one on"
            return Finding("automations", "warning", f"{', '.join(off)} switched off; {advice}")
        return Finding("automations", "ok", f"all {len(wanted)} of {DECLARED} are declared and on")

    def check_mlflow(self) -> Finding:
        """Check that the tracking store answers."""
        uri = self.settings.tracking_uri
        shown = without_credentials(uri)
        if urlsplit(uri).scheme not in ("http", "https"):
            return _check_database(uri, shown)
        try:
            found = self._ask("MLflow", f"{uri.rstrip('/')}/version", self._mlflow_login)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                advice = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
                return Finding("mlflow", "problem", f"{shown} refuses ({error.code}); {advice}")
            raise
        except OSError as error:
            advice = "runs go on and keep what they record; start it, then `lsm runs sync`"
            return Finding("mlflow", "problem", f"{shown} does not answer ({error}); {advice}")
        own = version("mlflow")
        if str(found) != own:
            text = f"the server at {shown} is {found}, this is {own}"
            return Finding("mlflow", "warning", text)
        return Finding("mlflow", "ok", f"{shown} answers, version {found}")

    def _ask(self, name: str, url: str, login: str | None, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if login:
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, content, headers)
        with urllib.request.urlopen(request, timeout=5) as answer:
            if answer.headers.get("Date"):
                self.dates[name] = parsedate_to_datetime(answer.headers["Date"])
            said = answer.read().decode()
        try:
            return json.loads(said)
        except ValueError:
            return said.strip()


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


def _absent(path: Path) -> str:
    return (
        f"there is no {path} in {Path.cwd()}, so nobody knows what the server should have; "
        "`lsm doctor` in the project's folder compares it"
    )


def _declared(path: Path) -> list[str]:
    """Return the names of the deployments in prefect.yaml."""
    import yaml

    return [each["name"] for each in yaml.safe_load(path.read_text()).get("deployments", [])]


def check_ports(settings: Settings) -> Finding:
    """Check that the stack's ports are free, or taken by the stack."""
    known = stack_services(settings.state)
    taken = []
    for name, port in {
        "PREFECT_API_URL": urlsplit(settings.prefect_api).port or PREFECT_PORT,
        "LSM_MLFLOW_PORT": settings.mlflow_port,
    }.items():
        is_ours = any(urlsplit(each["url"]).port == port for each in known)
        if not is_ours and _listens(port):
            taken.append(f"{port} (another with {name})")
    if taken:
        text = f"something that the stack did not start listens on {', '.join(taken)}"
        return Finding("ports", "warning", text)
    return Finding("ports", "ok", "those of the stack are free or its own")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


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


def stack_services(state: Path) -> list[dict[str, Any]]:
    """Return what the stack noted of the processes it started."""
    path = state / "stack.json"
    return list(json.loads(path.read_text())) if path.is_file() else []
