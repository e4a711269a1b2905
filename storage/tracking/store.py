"""Reaching the tracking store: addresses, clients, and a database that is whole or not there."""

import hashlib
import os
import sqlite3
import tempfile
from contextlib import AbstractContextManager, closing
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import mlflow
import sqlalchemy
from filelock import FileLock
from mlflow.exceptions import MlflowException
from mlflow.store.db.db_types import DATABASE_ENGINES

from storage.credentials import without_credentials
from storage.errors import StoreUnavailable, translated
from storage.location import Location
from storage.runs.leases import Leases

REQUEST_SECONDS = 20
PATIENCE = 10.0
# MLflow makes the tables of a new database itself, which takes long on a busy machine.
DATABASE_PATIENCE = 120.0
COMPARISON = "comparison"
"""The experiment in which models are put side by side; trainings have one for each problem."""


class Tracking:
    """A tracking database or server, and one experiment in it; making one contacts nothing.

    The end of a run waits at most `patience` seconds for the store to have all of it.
    """

    def __init__(
        self, uri: str, experiment: str, artifacts: Location, *, patience: float | None = None
    ) -> None:
        self.uri = absolute(uri)
        self.experiment = experiment
        self.artifacts = artifacts
        self.patience = patience
        self.leases = Leases(artifacts / "claims")
        require_possible(uri)

    @cached_property
    def client(self) -> mlflow.MlflowClient:
        """Return MLflow's client; a new database is made ready first."""
        with self.reached():
            return open_client(self.uri)

    @cached_property
    def experiment_id(self) -> str:
        """Return the number of the experiment; StoreUnavailable if the store does not answer."""
        with self.reached():
            return _experiment_number(self.client, self.uri, self.experiment, self.artifacts.url)

    def at(self, experiment: str) -> "Tracking":
        """Return the same store at another experiment; "" is this one."""
        if experiment in ("", self.experiment):
            return self
        other = Tracking(self.uri, experiment, self.artifacts, patience=self.patience)
        if "client" in self.__dict__:
            other.__dict__["client"] = self.client
        return other

    def reached(self) -> AbstractContextManager[None]:
        """Turn whatever a store, or something else in its place, does into StoreUnavailable."""

        def ours(error: Exception) -> StoreUnavailable:
            # What answers next time may be another database, with other numbers.
            self.__dict__.pop("experiment_id", None)
            return unavailable(self.uri, error)

        return translated(Exception, into=ours)

    def seconds_to_wait(self, has_failed: bool) -> float:
        """Return how long the end of a run waits for the store, which has failed since or not."""
        if self.patience is not None:
            return self.patience
        return PATIENCE if has_failed or is_server(self.uri) else DATABASE_PATIENCE


def open_tracking(uri: str, root: Location, experiment: str = COMPARISON) -> Tracking:
    """Return the tracking store of a workbench, made ready on first use."""
    return Tracking(uri, experiment, root / "artifacts")


def is_server(uri: str) -> bool:
    """Return whether a store is reached over HTTP; otherwise it is a database."""
    return urlsplit(uri).scheme in ("http", "https")


def unavailable(uri: str, error: Exception) -> StoreUnavailable:
    """Return one sentence on a store that fails, or raise it if the cause shows a password."""
    said = str(error).partition("\n")[0]
    bare = without_credentials(said)
    ours = StoreUnavailable(
        f"the tracking store {without_credentials(uri)} cannot be used ({bare}); "
        "check MLFLOW_TRACKING_URI"
    )
    if said != bare:
        raise ours from None
    return ours


def absolute(uri: str) -> str:
    """Return a URI that means the same in every working folder."""
    if not uri.startswith("sqlite:///"):
        return uri
    path, mark, options = uri.removeprefix("sqlite:///").partition("?")
    return uri if path in ("", ":memory:") else f"sqlite:///{Path(path).absolute()}{mark}{options}"


def require_possible(uri: str) -> None:
    """Raise StoreUnavailable for an address that no waiting would mend; contacts nothing."""
    with translated(Exception, into=lambda error: unavailable(uri, error)):
        parts = urlsplit(uri)
        scheme = parts.scheme.partition("+")[0]
        if is_server(uri):
            if not parts.hostname:
                raise ValueError("it names no host")
        elif scheme in DATABASE_ENGINES:
            database = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).url.database
            if scheme == "sqlite" and not _may_be_sqlite(Path(database or "")):
                raise ValueError("the file is not a database")
        else:
            mlflow.MlflowClient(tracking_uri=uri)


def _may_be_sqlite(path: Path) -> bool:
    """Return whether a file is a database, or can become one.

    sqlite is asked. A file that is opened and closed beside it takes the locks of this process with
    it: two processes then write at once, and the database is broken.
    """
    if not path.is_file() or path.stat().st_size == 0:
        return not path.is_dir() or path == Path()
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.Error as error:  # one that is busy is a database
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True


def open_client(uri: str) -> mlflow.MlflowClient:
    """Return MLflow's client; a new database gets its tables, by one thread of one process."""
    # MLflow knows no limits of one client. Sending again is our own matter: MLflow would do it for
    # minutes, within one call.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(REQUEST_SECONDS))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    if is_server(uri):
        return mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    with FileLock(_lock_file(uri)):
        if not uri.startswith("sqlite"):
            # MLflow would try again for an hour, in one call, where nothing answers.
            sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect().close()
        else:
            _make_whole(uri)
        return mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)


def _lock_file(uri: str) -> Path:
    """Return the lock of a database: beside its file, or this user's if it is on a server."""
    path = _sqlite_file(uri)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.with_name(f"{path.name}.lock")
    name = hashlib.sha256(without_credentials(uri).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"lsm-tracking-{os.getuid()}-{name}.lock"


def _sqlite_file(uri: str) -> Path | None:
    if not uri.startswith("sqlite"):
        return None
    database = sqlalchemy.make_url(uri).database
    return None if database in (None, "", ":memory:") else Path(str(database))


def _make_whole(uri: str) -> None:
    """Make a sqlite database with all its tables under another name first.

    Making them takes seconds, and MLflow cannot use a database whose maker was killed before the
    end. Only the holder of the lock calls this.
    """
    path = _sqlite_file(uri)
    if path is None or (path.exists() and path.stat().st_size):
        return
    for left in path.parent.glob(f"{path.name}.new*"):
        left.unlink()
    new = path.with_name(f"{path.name}.new")
    # MLflow's client makes the tables at its first question.
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{new}").search_experiments(max_results=1)
    new.replace(path)


def _experiment_number(client: mlflow.MlflowClient, uri: str, name: str, artifacts: str) -> str:
    """Return the number of an experiment, which is begun if there is none."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    # A server decides itself where artifacts lie; a bare database would use the working folder.
    place = None if is_server(uri) else artifacts
    try:
        return str(client.create_experiment(name, artifact_location=place))
    except MlflowException:
        # Another process may have made it in between.
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)
