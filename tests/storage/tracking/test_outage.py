"""A real MLflow server that hangs, dies and comes back while runs are recorded."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.engine.own_server import free_port
from storage.location import Location
from storage.tracking import echo
from storage.tracking.echo import Echo, send
from storage.tracking.store import Tracking
from tests.storage.tracking.records import expected, finished, record, steps

N_STEPS = 400
processes = multiprocessing.get_context("forkserver")


@dataclass
class MlflowServer:
    """A server process on loopback that can be paused, killed and started again."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        options = {
            "--backend-store-uri": f"sqlite:///{self.folder}/server.db",
            "--artifacts-destination": str(self.folder / "server-artifacts"),
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--workers": "1",
        }
        settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "DO_NOT_TRACK": "true"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", *sum(options.items(), ())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **settings},
                start_new_session=True,
            )

    def wait_until_it_answers(self) -> None:
        wait_until(self.answers, seconds=120)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        wait_until(lambda: self.is_paused)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def is_paused(self) -> bool:
        assert self.process is not None
        parent = psutil.Process(self.process.pid)
        family = [parent, *parent.children(recursive=True)]
        return all(process.status() == psutil.STATUS_STOPPED for process in family)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: int) -> None:
        # The server has a session of its own, so this reaches its workers and nobody else.
        assert self.process is not None
        os.killpg(self.process.pid, number)


def wait_until(is_so: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    running = MlflowServer(tmp_path_factory.mktemp("server"), free_port())
    running.start()
    try:
        running.wait_until_it_answers()
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True, scope="module")
def quick_children() -> None:
    processes.set_forkserver_preload(["tests.storage.tracking.records"])


@pytest.fixture(autouse=True)
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")


def tracking(server: MlflowServer, folder: Path, patience: float = 90) -> Tracking:
    return Tracking(server.uri, "outages", Location.parse(str(folder)), patience=patience)


def history(server: MlflowServer, folder: Path, identity: str) -> list[tuple[int, float]]:
    """Return what the server has of the one run with an identity, in the order it has it."""
    store = tracking(server, folder)
    (run,) = store.client.search_runs([store.experiment_id], f"tags.identity = '{identity}'")
    assert run.info.status == "FINISHED"
    return steps(store, identity)


def test_a_server_that_hangs_holds_up_nothing_and_gets_every_step_once(
    server: MlflowServer, tmp_path: Path
) -> None:
    sender = Echo(tracking(server, tmp_path))
    sender.update(record("hangs", 100))
    wait_until(sender.is_sent)
    for step in range(101, N_STEPS + 1):
        if step == 150:
            server.pause()
        sender.update(record("hangs", step))
    assert server.is_paused  # every call has returned, and none of them through the server
    # Requests that were given up are still in the server's queue, and are carried out later.
    wait_until(lambda: sender.n_failures >= 2)
    server.resume()
    assert sender.finish(finished("hangs", N_STEPS))
    assert history(server, tmp_path, "hangs") == expected(N_STEPS)


def test_the_end_of_a_run_waits_a_bounded_time_for_a_server_that_hangs(
    server: MlflowServer, tmp_path: Path
) -> None:
    server.pause()
    try:
        sender = Echo(tracking(server, tmp_path, patience=0.5), load=True)
        sender.update(record("bounded", 1))
        began = time.monotonic()
        assert not sender.finish(finished("bounded", 1))
        assert time.monotonic() - began < 5
        assert server.is_paused
    finally:
        server.resume()
    again = Echo(tracking(server, tmp_path))
    again.update(record("bounded", 1))
    assert again.finish(finished("bounded", 2))
    assert history(server, tmp_path, "bounded") == expected(2)


def test_a_server_that_is_killed_and_started_again_gets_every_step_once(
    server: MlflowServer, tmp_path: Path
) -> None:
    sender = Echo(tracking(server, tmp_path), load=True)
    for step in range(1, N_STEPS + 1):
        sender.update(record("dies", step))
        if step == 100:
            wait_until(lambda: sender.run_id is not None)
        if step == 200:
            server.kill()
    wait_until(lambda: sender.n_failures >= 1)
    server.start()
    assert sender.finish(finished("dies", N_STEPS))
    assert history(server, tmp_path, "dies") == expected(N_STEPS)


def test_a_request_of_a_dead_process_that_comes_after_its_successor_adds_nothing(
    server: MlflowServer, tmp_path: Path
) -> None:
    """What a hanging server has in its queue is carried out when everything was sent again."""
    store = tracking(server, tmp_path)
    run_id = send(store, record("late", 0)).run_id
    send(store, finished("late", 60))
    store.client.log_batch(run_id, metrics=record("late", 50).points)
    assert history(server, tmp_path, "late") == expected(60)


def test_a_process_killed_before_it_learned_of_an_answer_sends_nothing_twice(
    server: MlflowServer, tmp_path: Path
) -> None:
    child = processes.Process(target=die_at_the_answer, args=(server.uri, tmp_path))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    store = tracking(server, tmp_path)
    assert steps(store, "unnoted") == expected(50)
    resumed = Echo(store)
    resumed.update(record("unnoted", 40))
    assert resumed.finish(finished("unnoted", 60))
    assert history(server, tmp_path, "unnoted") == expected(60)


def die_at_the_answer(uri: str, folder: Path) -> None:
    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    echo.Sent = die  # type: ignore[assignment, misc]
    Echo(Tracking(uri, "outages", Location.parse(str(folder)))).finish(record("unnoted", 50))


def train(uri: str, folder: Path, identity: str, began: Connection) -> None:
    """Record as training does: what a checkpoint holds, from the last one on."""
    store = Tracking(uri, "outages", Location.parse(str(folder)), patience=90)
    checkpoint = folder / "checkpoint"
    first = int(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
    sender = Echo(store)
    sender.update(record(identity, first - 1, parameters={"epochs": str(N_STEPS)}))
    began.send(first)
    for step in range(first, N_STEPS + 1):
        time.sleep(0.002)
        if step % 7 == 0:
            partial = checkpoint.with_suffix(".partial")
            partial.write_text(str(step))
            partial.replace(checkpoint)
            sender.update(record(identity, step))
    if not sender.finish(finished(identity, N_STEPS)):
        raise SystemExit(1)


def killed_again_and_again(server: MlflowServer, folder: Path, seed: int, n_kills: int) -> None:
    moments = random.Random(seed)
    identity = f"killed-{seed}"
    for _ in range(n_kills):
        child = start_training(server, folder, identity)
        time.sleep(moments.uniform(0, 0.4))
        child.kill()
        child.join()
    child = start_training(server, folder, identity)
    child.join()
    assert child.exitcode == 0
    assert history(server, folder, identity) == expected(N_STEPS)


def start_training(server: MlflowServer, folder: Path, identity: str) -> Any:
    receiver, sender = processes.Pipe(duplex=False)
    child = processes.Process(target=train, args=(server.uri, folder, identity, sender))
    child.start()
    receiver.recv()
    return child


def test_a_process_killed_at_any_moment_loses_and_repeats_nothing(
    server: MlflowServer, tmp_path: Path
) -> None:
    killed_again_and_again(server, tmp_path, seed=0, n_kills=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_process_killed_many_times_loses_and_repeats_nothing(
    server: MlflowServer, tmp_path: Path, seed: int
) -> None:
    killed_again_and_again(server, tmp_path, seed, n_kills=8)


@pytest.mark.slow
def test_processes_and_server_killed_in_turn_lose_and_repeat_nothing(
    server: MlflowServer, tmp_path: Path
) -> None:
    moments = random.Random(9)
    for _ in range(4):
        child = start_training(server, tmp_path, "both")
        time.sleep(moments.uniform(0, 0.4))
        server.kill()
        time.sleep(moments.uniform(0, 0.2))
        child.kill()
        child.join()
        server.start()
        if moments.random() < 0.5:
            server.wait_until_it_answers()
    child = start_training(server, tmp_path, "both")
    child.join()
    assert child.exitcode == 0
    assert history(server, tmp_path, "both") == expected(N_STEPS)
