"""What all tests share: MLflow's server, and the tables of its databases, made once in a process.

MLflow makes tables by all migrations of its history, one after the other, which takes seconds. The
first database of a process is made so; each later one is a copy of what that was before anything
was in it.
"""

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

_making = threading.Lock()
_empty: list[sqlite3.Connection] = []
"""The first database as MLflow has made it, in memory."""
_path = sys.path.copy()


def pytest_runtest_setup() -> None:
    """Let MLflow copy its tables, as soon as a test has imported what makes them.

    The sources that come with a model leave the path, where MLflow has put them for an earlier
    test: a process that is spawned would import those in place of ours.
    """
    sys.path[:] = _path
    makes_tables = sys.modules.get("mlflow.store.db.utils")
    if makes_tables is not None and not hasattr(makes_tables._initialize_tables, "copies"):
        copies = _copying(makes_tables._initialize_tables)
        for name in ("mlflow.store.db.utils", "mlflow.store.model_registry.sqlalchemy_store"):
            if name in sys.modules:
                sys.modules[name]._initialize_tables = copies  # type: ignore[attr-defined]


def _copying(make_tables: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return what makes the tables of a database once, and copies them into every later one."""

    def copy(engine: Any) -> None:
        file = engine.url.database
        if engine.url.get_backend_name() != "sqlite" or file in (None, "", ":memory:"):
            make_tables(engine)
            return
        with _making, closing(sqlite3.connect(file)) as database:
            is_new = not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if is_new and _empty:
                _empty[0].backup(database)
                return
            make_tables(engine)  # one of an earlier version is brought up to date
            if is_new:
                _empty.append(sqlite3.connect(":memory:", check_same_thread=False))
                database.backup(_empty[0])

    copy.copies = True  # type: ignore[attr-defined]
    return copy


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of a server for all who use other names of experiments and models."""
    from tests.storage.tracking.mlflow_server import running_server

    with running_server(tmp_path_factory.mktemp("mlflow-server")) as address:
        yield address
