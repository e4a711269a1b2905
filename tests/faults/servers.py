"""Servers that are killed while runs are recorded in them: MLflow and PostgreSQL."""

import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.engine.own_server import free_port
from storage.location import Location
from storage.tracking.echo import Echo
from storage.tracking.store import Tracking
from tests.faults.prefect_stack import kill_family
from tests.faults.table import Outcome, Trial
from tests.infra.postgres_server import NOBODY, _programs
from tests.storage.tracking.records import finished, record
from tests.storage.tracking.test_outage import MlflowServer, wait_until

N_STEPS = 300


@contextmanager
def tracking_server_killed(folder: Path) -> Iterator[Trial]:
    """Kill the MLflow server while a run is recorded, and start it again."""
    server = MlflowServer(folder, free_port())
    server.start()
    try:
        server.wait_until_it_answers()

        def trial(moments: random.Random, own: Path) -> Outcome:
            return _record_while(server.uri, own, moments, server.kill, server.start)

        yield trial
    finally:
        server.stop()


@contextmanager
def database_killed(folder: Path) -> Iterator[Trial]:
    """Kill PostgreSQL while a run is recorded in it, and start it again."""
    with postgres() as server:
        server.start()
        uri = f"postgresql+psycopg2://postgres@127.0.0.1:{server.port}/postgres"
        Tracking(uri, "faults", Location.parse(str(folder))).client  # noqa: B018

        def trial(moments: random.Random, own: Path) -> Outcome:
            return _record_while(uri, own, moments, server.kill, server.start)

        yield trial


def _record_while(uri: str, own: Path, moments: random.Random, kill: Any, start: Any) -> Outcome:
    """Record a run, kill its store meanwhile, start it again, and count the steps it has."""
    tracking = Tracking(uri, "faults", Location.parse(str(own)), patience=180)
    run = Echo(tracking)
    run.update(record(own.name))
    kill_at = moments.randint(1, N_STEPS - 50)
    # Some trials kill the store before it knows of the run, the others after.
    if moments.random() < 0.8:
        wait_until(lambda: run.run_id is not None, seconds=120)
    killer: threading.Thread | None = None
    for step in range(1, N_STEPS + 1):
        if step % 5 == 0:
            run.update(record(own.name, step))
            time.sleep(0.002)
        if step == kill_at:
            kill()
            killer = threading.Timer(moments.uniform(0, 2), start)
            killer.start()
    run.finish(finished(own.name, N_STEPS))
    assert killer is not None
    killer.join()
    return _count(tracking, own.name)


def _count(tracking: Tracking, identity: str) -> Outcome:
    fresh = Tracking(tracking.uri, tracking.experiment, tracking.artifacts)
    query = f"tags.identity = '{identity}'"
    found = fresh.client.search_runs([fresh.experiment_id], query)
    assert found, "the run is not in the store"
    assert found[0].info.status == "FINISHED", found[0].info.status
    steps = [
        metric.step
        for run in found
        for metric in fresh.client.get_metric_history(run.info.run_id, "loss")
    ]
    return Outcome(N_STEPS - len(set(steps)), len(steps) - len(set(steps)) + len(found[1:]))


@dataclass
class Postgres:
    """A PostgreSQL server that can be killed; it trusts whoever is on this machine."""

    folder: Path
    port: int

    def start(self) -> None:
        """Start, again if children of the last one are still ending."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        command = [*self._as_user, _programs() / "pg_ctl", "-D", self.folder / "data", "-w"]
        command += ["-l", self.folder / "log", "-o", options, "start"]
        for _ in range(10):
            done = subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", check=False)
            if done.returncode == 0:
                return
            time.sleep(0.5)
        raise RuntimeError((self.folder / "log").read_text()[-500:])

    def make(self) -> None:
        """Make the files of a new server."""
        if self._as_user:
            subprocess.run(["chown", "nobody:nogroup", self.folder], check=True)
        command = [*self._as_user, _programs() / "initdb", "-D", self.folder / "data"]
        command += ["-U", "postgres", "--auth=trust"]
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", check=True)

    def kill(self) -> None:
        """Kill the server and every process of it, as a loss of power would."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        kill_family(pid)

    @property
    def _as_user(self) -> list[str]:
        return NOBODY if os.geteuid() == 0 else []


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Provide a PostgreSQL server that is not started yet."""
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(Path(folder), free_port())
        server.make()
        try:
            yield server
        finally:
            if (Path(folder) / "data" / "postmaster.pid").exists():
                server.kill()
