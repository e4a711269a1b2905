"""Servers that are killed while runs depend on them: MLflow, PostgreSQL, Prefect and its worker."""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from flows.engine.own_server import free_port
from flows.settings import CONTROL_POOL
from flows.stack.deployment import AUTOMATIONS, declare_automations, prefect_client
from flows.steps.training.cells import cell
from flows.steps.training.workplace import Workplace
from storage.location import Location
from storage.tracking.echo import Echo
from storage.tracking.store import Tracking
from tests.faults import work
from tests.faults.table import Outcome, Trial
from tests.infra.postgres_server import NOBODY, _programs
from tests.storage.tracking.records import finished, record
from tests.storage.tracking.test_outage import MlflowServer, wait_until

REPOSITORY = Path(__file__).parents[2]
N_STEPS = 300
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
BUSY_ANSWERS = 10
PATIENCE = 600.0


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


def kill_family(pid: int) -> None:
    """Kill a process and all its children, and wait until they are gone."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=20)


class PrefectStack:
    """A Prefect server with the project's deployments, and workers, each of which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.server: subprocess.Popen[bytes] | None = None
        self.worker: subprocess.Popen[bytes] | None = None
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LSM_", "PREFECT_"))}
        self.environment = {
            **kept,
            "PYTHONPATH": str(REPOSITORY),
            "PREFECT_API_URL": self.api,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "3",
            "PREFECT_RUNNER_POLL_FREQUENCY": "3",
            "DO_NOT_TRACK": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "LSM_STORE": str(folder / "store"),
            "LSM_WORKERS": "1",
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        }
        (folder / "store").mkdir(exist_ok=True)

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def start_server(self) -> None:
        """Start the server and wait until it answers."""
        self.server = self._start("server", "start", "--host", "127.0.0.1", "--port", self.port)
        wait_until(self._answers, seconds=600)

    def kill_server(self) -> None:
        assert self.server is not None
        kill_family(self.server.pid)
        self.server.wait()

    def deploy(self) -> None:
        """Make the pool, declare the deployment, and what the server does by itself."""
        for arguments in (
            ("work-pool", "create", CONTROL_POOL, "--type", "process", "--overwrite"),
            ("--no-prompt", "deploy", "--name", "one"),
        ):
            command = [sys.executable, "-m", "prefect", *arguments]
            subprocess.run(
                command,
                cwd=REPOSITORY,
                env=self.environment,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
        with prefect_client(self.api, {}) as client:
            declare_automations(client, REPOSITORY / AUTOMATIONS)

    def start_worker(self) -> None:
        self.worker = self._start("worker", "start", "--pool", CONTROL_POOL, "--type", "process")

    def kill_worker(self, with_children: bool) -> None:
        """Kill the worker alone, as by accident, or with its runs, as when a machine is lost."""
        assert self.worker is not None
        if with_children:
            kill_family(self.worker.pid)
        else:
            self.worker.kill()
        self.worker.wait()

    def kill_engine(self) -> None:
        """Kill the processes of the flow runs that the worker has started."""
        assert self.worker is not None
        for engine in psutil.Process(self.worker.pid).children():
            kill_family(engine.pid)

    def submit(self, seed: int) -> str:
        """Submit a training of a second or two, and return the run's number."""
        deployment = self.ask("GET", "/deployments/name/train/train-one-model")["id"]
        parameters = {"benchmarks": ["burgers"], "models": ["lsm"], "preset": "smoke"}
        body = {"parameters": {**parameters, "seeds": [seed]}, "state": {"type": "SCHEDULED"}}
        return str(self.ask("POST", f"/deployments/{deployment}/create_flow_run", body)["id"])

    def state(self, run: str) -> str:
        return str(self.ask("GET", f"/flow_runs/{run}")["state_type"])

    def message(self, run: str) -> str:
        """Return what the server says of a run."""
        return json.dumps(self.ask("GET", f"/flow_runs/{run}")["state"])

    def wait_for(self, run: str, states: tuple[str, ...], seconds: float = 900) -> str:
        wait_until(lambda: self.state(run) in states, seconds)
        return self.state(run)

    def count(self, seed: int) -> Outcome:
        """Return what the store and MLflow lack or repeat of a training."""
        experiment = cell("smoke", "burgers", "lsm", seed)
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
        for process in (self.worker, self.server):
            if process is not None:
                kill_family(process.pid)
                process.wait()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.api}{path}", content, {"Content-Type": "application/json"}, method=method
        )
        for _ in range(BUSY_ANSWERS):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                # "Try again": a busy database. Prefect's own clients do so, too.
                if error.code != 503:
                    raise
                time.sleep(1)
        raise RuntimeError(f"the server is too busy to answer {path}, again and again")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.api}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _start(self, *arguments: Any) -> subprocess.Popen[bytes]:
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "prefect", *map(str, arguments)],
                cwd=REPOSITORY,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@contextmanager
def prefect_stack(folder: Path) -> Iterator[PrefectStack]:
    """Provide a Prefect server with a worker, and the data that all trainings share."""
    stack = PrefectStack(folder)
    try:
        stack.start_server()
        stack.deploy()
        stack.start_worker()
        first = stack.submit(seed=10_000)
        assert stack.wait_for(first, FINAL) == "COMPLETED"
        yield stack
    finally:
        stack.stop()


@contextmanager
def prefect_worker_killed(folder: Path) -> Iterator[Trial]:
    """Kill the worker while it trains, its run, or both as when a machine is lost."""

    def hit(stack: PrefectStack, moments: random.Random) -> None:
        what = moments.choice(("worker", "engine", "both"))
        if what == "engine":
            stack.kill_engine()
        else:
            stack.kill_worker(with_children=what == "both")
            stack.start_worker()

    with prefect_stack(folder) as stack:
        yield partial(_hit_while_training, stack, hit)


@contextmanager
def prefect_server_killed(folder: Path) -> Iterator[Trial]:
    """Kill Prefect's server while its worker trains, and start it again."""

    def hit(stack: PrefectStack, _moments: random.Random) -> None:
        stack.kill_server()
        stack.start_server()
        assert stack.worker is not None
        if stack.worker.poll() is not None:
            stack.start_worker()

    with prefect_stack(folder) as stack:
        yield partial(_hit_while_training, stack, hit)


def _hit_while_training(
    stack: PrefectStack,
    hit: Callable[[PrefectStack, random.Random], None],
    moments: random.Random,
    own: Path,
) -> Outcome | None:
    """Submit a training, break something at a random moment, and count when the run has ended.

    What died is started again, as the stack's supervisor does; nobody touches the run.
    """
    seed = _seed(own)
    run = stack.submit(seed)
    stack.wait_for(run, ("RUNNING", *FINAL))
    time.sleep(moments.uniform(0, 12))
    is_hit = stack.state(run) == "RUNNING"
    hit(stack, moments)
    # Neither a crash nor the loss of the server is the end: it brings such a run back.
    deadline = time.monotonic() + PATIENCE
    while stack.state(run) != "COMPLETED":
        assert time.monotonic() < deadline, stack.message(run)
        time.sleep(0.5)
    outcome = stack.count(seed)
    return outcome if is_hit else None


def _seed(own: Path) -> int:
    """Return a seed that no other trial has."""
    return int(own.name.split("-")[0]) + 1
