"""Look an installation over and say, one line a thing, what is wrong and what to do.

Everything here asks; the only writing is a probe in the store, which is removed again.
"""

import shutil
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import httpx

from flows.settings import CELL_POOL, CONTROL_POOL, Settings
from flows.stack.deployment import (
    AUTOMATIONS,
    DEPLOYMENTS,
    PAGE,
    declared_automations,
    prefect_client,
)
from flows.stack.services import services
from storage.credentials import without_credentials
from storage.datasets.reader import open_dataset, verify_dataset
from storage.errors import DatasetIncomplete, StorageError
from storage.location import Location

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

LITTLE_SPACE, HARDLY_ANY_SPACE = 20e9, 2e9
PINS = Path(__file__).parents[2] / "constraints.txt"
"""Beside the sources; what is installed as a package has none."""
ANSWER_SECONDS = 5.0
REFUSALS = (401, 403)

State = Literal["ok", "warning", "problem"]
Verdict = tuple[State, str]
"""What a check returns: how a thing is, and what to do if it is not well."""


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, and the verdict on it."""

    subject: str
    state: State
    text: str


def examine(
    settings: Settings, environment: Mapping[str, str], *, data: bool = False
) -> Iterator[Finding]:
    """Yield a finding for every check; a check that fails is a problem, not the end.

    With `data`, every dataset is read and compared with its checksums.
    """
    pools = (CONTROL_POOL, CELL_POOL)
    with ExitStack() as opened:
        server = PrefectServer(settings.prefect_api, environment, opened)
        checks: dict[str, Callable[[], Verdict]] = {
            "packages": check_packages,
            "store": lambda: check_store(settings.root),
            "space": lambda: check_space(settings.state),
            "datasets": lambda: check_datasets(settings.root, data),
            "prefect": server.check,
            "worker": lambda: server.ask(lambda client: check_workers(client, pools)),
            "deployments": lambda: server.ask(check_deployments),
            "automations": lambda: server.ask(check_automations),
            "mlflow": lambda: check_mlflow(settings.tracking_uri, environment),
            "dask": lambda: check_dask(settings.dask_address),
            "device": lambda: _check_device(settings.device),
            "stack": lambda: check_stack(settings),
        }
        for subject, check in checks.items():
            try:
                yield Finding(subject, *check())
            except Exception as error:
                said = " ".join(without_credentials(str(error)).split())
                yield Finding(subject, "problem", f"{type(error).__name__}: {said}")


def check_packages() -> Verdict:
    """Check versions: bounds that are known to break are problems, other pins warnings."""
    from packaging.requirements import Requirement

    broken = []
    for text in requires("lsm") or []:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            found = _installed(needed.name)
            if found is None:
                broken.append(f"{needed.name} is missing")
            elif not needed.specifier.contains(found, prereleases=True):
                broken.append(f"{needed.name} {found} is not {needed.specifier}")
    if broken:
        advice = "`pip install --constraint constraints.txt --editable .`"
        return "problem", f"{_some(broken)}; {advice}"
    if not PINS.is_file():
        return "ok", "within all bounds; no constraints.txt to compare with"
    pins = _pins(PINS)
    other = [
        f"{name} {found} instead of {pinned}"
        for name, pinned in pins.items()
        if (found := _installed(name)) is not None and found.partition("+")[0] != pinned
    ]
    if other:
        return "warning", f"{_some(other)}; `make setup` installs the pinned"
    return "ok", f"within all bounds, {len(pins)} pins agree"


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    pairs = [line.partition(";")[0].strip().split("==") for line in lines if "==" in line]
    return {name: pinned for name, pinned in pairs if not name.startswith("#")}


def check_store(root: Location) -> Verdict:
    """Check that the store takes a file, replaces it in one step and gives it back."""
    place = without_credentials(str(root))
    probe = root / f".doctor-{uuid.uuid4().hex}"
    try:
        for content in (b"first", b"second"):
            probe.write_bytes(content)
        is_good = probe.read_bytes() == b"second" and probe.name in root.names()
        probe.remove()
    except (OSError, StorageError) as error:
        said = str(error).partition("; ")[0]
        return "problem", f"{said}; mend it, or choose another with LSM_STORE"
    if not is_good or probe.exists():
        return "problem", f"{place} does not give back what was written"
    return "ok", f"{place} takes, replaces, lists and removes files"


def check_space(folder: Path) -> Verdict:
    """Check that there is room for data and checkpoints."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:.1f} GB free for {folder}"
    if free < HARDLY_ANY_SPACE:
        return "problem", f"{text}; make room before anything is started"
    if free < LITTLE_SPACE:
        return "warning", f"{text}; the paper preset needs more"
    return "ok", text


def check_datasets(root: Location, data: bool) -> Verdict:
    """Check that every dataset opens, and with `data` that it is as it was written."""
    whole, unfinished, damaged = 0, 0, []
    for benchmark in (root / "datasets").names():
        for name in (root / "datasets" / benchmark).names():
            if name.endswith(".zarr"):
                try:
                    place = root / "datasets" / benchmark / name
                    verify_dataset(place) if data else open_dataset(place)
                    whole += 1
                except DatasetIncomplete:
                    unfinished += 1
                except StorageError as error:
                    damaged.append(str(error))
    if damaged:
        return "problem", _some(damaged)
    text = f"{whole} complete{' and as they were written' if data and whole else ''}"
    if unfinished:
        advice = "`lsm prepare` with the same arguments ends them"
        return "warning", f"{text}, {unfinished} unfinished; {advice}"
    return "ok", text


@dataclass
class PrefectServer:
    """The Prefect server of an installation, as its client sees it."""

    api: str
    environment: Mapping[str, str]
    opened: ExitStack
    answers: bool = False

    @cached_property
    def client(self) -> "SyncPrefectClient":
        """Return the client; a check makes it, and a broken Prefect is that check's problem."""
        return self.opened.enter_context(prefect_client(self.api, self.environment))

    def check(self) -> Verdict:
        """Check that the server answers and is of this version; the other checks need that."""
        try:
            found = self.client.api_version()
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in REFUSALS:
                raise
            return "problem", f"{self.api} asks for a password; set PREFECT_API_AUTH_STRING"
        except httpx.TransportError:
            advice = "commands start one of their own; `lsm stack up` starts one that stays"
            return "warning", f"nothing answers at {self.api}; {advice}"
        self.answers = True
        own = version("prefect")
        if found != own:
            text = f"the server at {self.api} is {found}, this is {own}; install the same on both"
            return "problem", text
        return "ok", f"{self.api} answers, version {found}"

    def ask(self, check: "Callable[[SyncPrefectClient], Verdict]") -> Verdict:
        """Return what a check finds on the server."""
        if not self.answers:
            return "warning", "not looked for, since Prefect does not answer"
        return check(self.client)


def check_workers(client: "SyncPrefectClient", pools: Sequence[str]) -> Verdict:
    """Check that somebody takes runs out of each of our pools."""
    from prefect.exceptions import ObjectNotFound

    counts = {}
    for pool in pools:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:
            return "problem", f"there is no pool {pool}; `lsm stack up` makes it"
        workers = client.read_workers_for_work_pool(pool)
        counts[pool] = sum(each.status == "ONLINE" for each in workers)
    empty = [pool for pool, count in counts.items() if not count]
    if empty:
        advice = f"`prefect worker start --pool {empty[0]}`, or `lsm stack up`"
        return "problem", f"no worker of the pool {empty[0]} is alive; {advice}"
    return "ok", ", ".join(f"{count} in the pool {pool}" for pool, count in counts.items())


def check_deployments(client: "SyncPrefectClient") -> Verdict:
    """Check that every deployment of prefect.yaml is declared on the server."""
    import yaml

    if not DEPLOYMENTS.is_file():
        return "problem", _absent(DEPLOYMENTS)
    declared = yaml.safe_load(DEPLOYMENTS.read_text()).get("deployments", [])
    wanted = [each["name"] for each in declared]
    there = [each.name for each in client.read_deployments(limit=PAGE)]
    missing = sorted({name for name in wanted if wanted.count(name) > there.count(name)})
    if missing:
        return "problem", f"{', '.join(missing)} missing; `lsm stack deploy` declares them"
    return "ok", f"all {len(wanted)} of prefect.yaml are declared"


def check_automations(client: "SyncPrefectClient") -> Verdict:
    """Check that what the server does when a run dies is declared on it, and switched on."""
    if not AUTOMATIONS.is_file():
        return "problem", _absent(AUTOMATIONS)
    wanted = [each.name for each in declared_automations()]
    there = {each.name: each.enabled for each in client.read_automations()}
    missing = [name for name in wanted if name not in there]
    if missing:
        advice = "runs that die stay as they are; `lsm stack deploy` declares them"
        return "problem", f"{', '.join(missing)} missing; {advice}"
    off = [name for name in wanted if not there[name]]
    if off:
        advice = "`prefect automation resume` with the name switches one on"
        return "warning", f"{', '.join(off)} switched off; {advice}"
    return "ok", f"all {len(wanted)} of {AUTOMATIONS} are declared and on"


def _absent(path: Path) -> str:
    return (
        f"there is no {path} in {Path.cwd()}, so nobody knows what the server should have; "
        "`lsm doctor` in the project's folder compares it"
    )


def check_mlflow(uri: str, environment: Mapping[str, str]) -> Verdict:
    """Check that the tracking store answers."""
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
        return "problem", f"{shown} does not answer ({error}); {advice}"
    if answer.status_code in REFUSALS:
        advice = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        return "problem", f"{shown} refuses ({answer.status_code}); {advice}"
    found, own = answer.raise_for_status().text.strip(), version("mlflow")
    if found != own:
        return "warning", f"the server at {shown} is {found}, this is {own}"
    return "ok", f"{shown} answers, version {found}"


def _check_database(uri: str, shown: str) -> Verdict:
    import sqlalchemy

    path = Path(sqlalchemy.make_url(uri).database or "")
    if uri.startswith("sqlite") and not path.exists():
        return "ok", f"{shown} is made at the first run"
    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    try:
        with engine.connect() as connection:
            count = connection.execute(sqlalchemy.text("select count(*) from runs")).scalar()
    except sqlalchemy.exc.SQLAlchemyError as error:
        said = without_credentials(str(error.__cause__ or error)).partition("\n")[0]
        return "problem", f"{shown} cannot be used ({said})"
    return "ok", f"{shown} answers, {count} runs"


def check_dask(address: str | None) -> Verdict:
    """Check that the scheduler answers, if one is set."""
    if address is None:
        return "ok", "not used; data is generated on this machine"
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 8786), timeout=3):
            return "ok", f"{address} answers"
    except OSError as error:
        return "problem", f"no scheduler answers at {address} ({error}); check LSM_DASK"


def _check_device(wanted: str) -> Verdict:
    """Check driver, torch and every GPU; imports torch, which takes seconds, only here."""
    from flows.stack.gpus import check_device

    return check_device(wanted)


def check_stack(settings: Settings) -> Verdict:
    """Check that what the stack started still runs."""
    started = services(settings)
    down = [service.name for service in started if service.process() is None]
    if down:
        return "problem", f"{', '.join(down)} is down; `lsm stack up` starts it again"
    return "ok", f"{len(started)} services run" if started else "not started"


def _some(texts: list[str]) -> str:
    """Return the first few, and how many more there are."""
    shown = ", ".join(texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3} more"
