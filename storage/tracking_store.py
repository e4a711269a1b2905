"""Reaching the tracking store: addresses, clients, and a database that is whole or not there."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import mlflow
import sqlalchemy
from mlflow.exceptions import MlflowException
from mlflow.store.db.db_types import DATABASE_ENGINES

from storage.errors import StoreUnavailable
from storage.run_journal import without_credentials

REQUEST_SECONDS = 20


def is_server(uri: str) -> bool:
    """Return whether a store is reached over HTTP; otherwise it is a database."""
    return urlsplit(uri).scheme in ("http", "https")


@contextmanager
def told(uri: str) -> Iterator[None]:
    """Turn whatever a store, or something else in its place, does into one sentence."""
    try:
        yield
    except StoreUnavailable:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        bare = without_credentials(said)
        raise StoreUnavailable(
            f"the tracking store {without_credentials(uri)} cannot be used ({bare}); "
            "check MLFLOW_TRACKING_URI"
        ) from (error if said == bare else None)


def absolute(uri: str) -> str:
    """Return a URI that means the same in every working folder."""
    if not uri.startswith("sqlite:///"):
        return uri
    path, mark, options = uri.removeprefix("sqlite:///").partition("?")
    return uri if path in ("", ":memory:") else f"sqlite:///{Path(path).absolute()}{mark}{options}"


def require_possible(uri: str) -> None:
    """Raise StoreUnavailable for an address that no waiting would mend; contacts nothing."""
    with told(uri):
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
    if not path.is_file() or path.stat().st_size == 0:
        return not path.is_dir() or path == Path()
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


_one_at_a_time = threading.Lock()


def open_client(uri: str, folder: Path) -> mlflow.MlflowClient:
    """Return MLflow's client; a new database gets its tables, by one thread of one process."""
    # MLflow knows no limits of one client. Sending again is our own matter: MLflow would do it for
    # minutes, within one call.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(REQUEST_SECONDS))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    if is_server(uri):
        return mlflow.MlflowClient(tracking_uri=uri)
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time, (folder / "database.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not uri.startswith("sqlite"):
            # MLflow would try again for an hour, in one call, where nothing answers.
            sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect().close()
        else:
            _make_whole(uri)
        return mlflow.MlflowClient(tracking_uri=uri)


def _make_whole(uri: str) -> None:
    """Make a sqlite database with all its tables under another name first.

    Making them takes seconds, and MLflow cannot use a database whose maker was killed before the
    end. Only the holder of the lock calls this.
    """
    path = Path(sqlalchemy.make_url(uri).database or "")
    if path == Path() or str(path) == ":memory:" or (path.exists() and path.stat().st_size):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{path.name}.new*"):
        left.unlink()
    new = path.with_name(f"{path.name}.new")
    # MLflow's client makes the tables at its first question.
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{new}").search_experiments(max_results=1)
    new.replace(path)


def experiment_number(client: mlflow.MlflowClient, uri: str, name: str, artifacts: str) -> str:
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
