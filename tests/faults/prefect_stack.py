"""Prefect's server with the project's deployments and workers of both pools, each to be killed."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from flows.engine.own_server import free_port
from flows.settings import CELL_POOL, CONTROL_POOL, Settings
from flows.stack.deployment import deploy
from flows.steps.training.cells import cell
from flows.steps.training.workplace import Workplace
from storage.location import Location
from tests.faults import work
from tests.faults.hosts import Host
from tests.faults.table import Outcome
from tests.storage.tracking.test_outage import wait_until

REPOSITORY = Path(__file__).parents[2]
DEPLOYMENT = "train/train-one-model"
MODEL = "fno"
BUSY_ANSWERS = 60
AT_ONCE = 2


def kill_family(pid: int) -> None:
    """Kill a process and all its children, and wait until they are gone."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=20)


class PrefectStack:
    """A server and one worker of each pool; what is killed is started again as supervisors do."""

    def __init__(
        self, folder: Path, database: str | None = None, hosts: Mapping[str, Host] | None = None
    ) -> None:
        self.folder, self.port, self.hosts = folder, free_port(), hosts or {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[Any, ...]] = {}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LSM_", "PREFECT_"))}
        self.environment = {
            **kept,
            "PYTHONPATH": str(REPOSITORY),
            "PREFECT_API_URL": self.api,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "LSM_STORE": str(folder / "store"),
            "LSM_WORKERS": "1",
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        }
        if database is not None:
            self.environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database
        (folder / "store").mkdir(exist_ok=True)

    @property
    def api(self) -> str:
        return f"http://{self._address}:{self.port}/api"

    @property
    def _address(self) -> str:
        return self.hosts["server"].address if "server" in self.hosts else "127.0.0.1"

    def start(self) -> None:
        """Start everything, and declare what the server is to know."""
        self.start_server()
        self.declare()
        self.start_worker(CONTROL_POOL)
        self.start_worker(CELL_POOL)

    def declare(self) -> None:
        """Declare pools, deployments and automations, as `lsm stack up` does."""
        kept = os.environ.copy()
        os.environ.update(self.environment)
        try:
            deploy(Settings.from_environment(), self.environment)
        finally:
            os.environ.clear()
            os.environ.update(kept)

    def start_server(self) -> None:
        """Start the server and wait until it answers."""
        self._start("server", "server", "start", "--host", self._address, "--port", self.port)
        wait_until(self._answers, seconds=600)

    def start_worker(self, pool: str, name: str = "", at_once: int = AT_ONCE) -> None:
        limit = ("--limit", at_once) if pool == CELL_POOL else ()
        self._start(name or pool, "worker", "start", "--pool", pool, "--type", "process", *limit)

    def kill(self, name: str, *, with_children: bool = True) -> None:
        """Kill a process alone, as by accident, or with all it started, as a machine is lost."""
        process = self.processes[name]
        if with_children:
            kill_family(process.pid)
        process.kill()
        process.wait()

    def revive(self) -> None:
        """Start again what has ended by itself.

        Prefect's worker does when a run that it still holds is given to it a second time.
        """
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                self._start(name, *self._commands[name])

    def process_of(self, run: str) -> int | None:
        """Return the process of a run, the first that it has started."""
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get("PREFECT__FLOW_RUN_ID") == run:
                    return int(process.pid)
        return None

    def has_started(self, worker: str, run: str) -> bool:
        """Return whether the process of a run is a child of a worker, near or far."""
        with suppress(psutil.Error):
            family = psutil.Process(self.processes[worker].pid).children(recursive=True)
            return self.process_of(run) in {process.pid for process in family}
        return False

    def kill_run(self, run: str) -> bool:
        """Kill the process of a run and its children; return whether there was one."""
        pid = self.process_of(run)
        if pid is not None:
            kill_family(pid)
        return pid is not None

    def submit(self, seeds: list[int]) -> str:
        """Submit trainings of a second or two, each a cell on the pool; return the parent's id."""
        deployment = self.ask("GET", f"/deployments/name/{DEPLOYMENT}")["id"]
        parameters = {"benchmarks": ["burgers"], "models": [MODEL], "preset": "smoke"}
        parameters |= {"seeds": seeds, "cells": "pool"}
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return str(self.ask("POST", f"/deployments/{deployment}/create_flow_run", body)["id"])

    def runs(self, of_flow: str) -> list[dict[str, Any]]:
        """Return all runs of a flow."""
        wanted = {"flows": {"name": {"any_": [of_flow]}}, "sort": "EXPECTED_START_TIME_ASC"}
        return list(self.ask("POST", "/flow_runs/filter", {**wanted, "limit": 200}))

    def count(self, seed: int) -> Outcome:
        """Return what the store and MLflow lack or repeat of a training."""
        experiment = cell("smoke", "burgers", MODEL, seed)
        root = Location.parse(self.environment["LSM_STORE"])
        place = Workplace(
            root=root,
            dataset=root,
            tracking_uri=self.environment["MLFLOW_TRACKING_URI"],
            study="train",
            n_threads=1,
        )
        is_there = place.checkpoints(experiment.identity).result() is not None
        found = work.count_steps(place, experiment.identity, experiment.training.epochs)
        return Outcome(found.lost + (not is_there), found.duplicated)

    def stop(self) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the server, which may be away or busy for a while."""
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.api}{path}", content, {"Content-Type": "application/json"}, method=method
        )
        for _ in range(BUSY_ANSWERS):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                # A busy database, or one that is away. Prefect's own clients try again, too.
                if error.code < 500:
                    raise
            except OSError:
                pass
            time.sleep(1)
        raise RuntimeError(f"the server does not answer {path}, again and again")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.api}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _start(self, name: str, *arguments: Any) -> None:
        self._commands[name] = arguments
        prefix = self.hosts[name].prefix if name in self.hosts else []
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*prefix, sys.executable, "-m", "prefect", *map(str, arguments)],
                cwd=REPOSITORY,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
