"""The local stack with real processes that start at once; the whole one is in end_to_end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.cli.main import main
from flows.engine.own_server import free_port
from flows.errors import ServiceFailed
from flows.settings import Settings
from flows.stack import local as stack
from flows.stack.services import (
    Service,
    keep_services,
    services,
    stack_file,
    stack_lock,
    stack_lock_if_free,
)
from storage.runs.processes import birth_of
from tests.flows.stack.small_servers import (
    start,
    start_server,
    start_worker,
    wait_for,
    write_modules,
)

# Services outlive whoever started them, which Python warns of.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    for name in [name for name in os.environ if name.startswith(("LSM_", "MLFLOW_", "PREFECT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{free_port()}/api")
    monkeypatch.setenv("LSM_MLFLOW_PORT", str(free_port()))
    monkeypatch.setenv("LSM_GPUS", "none")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_modules(tmp_path)
    monkeypatch.setattr("flows.stack.services.STOP_SECONDS", 3.0)  # these have nothing to finish
    made = Settings.from_environment()
    yield made
    stack.down(made)


def test_whoever_comes_second_waits_and_says_so(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    service = start_server(settings)
    stopped: list[str] = []
    second = threading.Thread(target=lambda: stopped.extend(stack.down(settings)))
    with stack_lock(settings.state):
        second.start()
        wait_for(lambda: "lsm: somebody else changes" in capsys.readouterr().err)
        assert service.process() is not None
    second.join()
    assert stopped == ["web-server"]
    assert service.process() is None


def test_the_lock_of_a_killed_process_is_free(settings: Settings) -> None:
    script = (
        "import sys, time; from pathlib import Path; from flows.stack.services import stack_lock\n"
        "with stack_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(settings.state)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with stack_lock_if_free(settings.state) as is_ours:
            assert not is_ours
        holder.kill()
    with stack_lock_if_free(settings.state) as is_ours:
        assert is_ours


def test_a_folder_that_is_gone_is_not_made_again_by_a_look(tmp_path: Path) -> None:
    with stack_lock_if_free(tmp_path / "gone") as is_ours:
        assert not is_ours
    assert not (tmp_path / "gone").exists()


def test_what_a_killed_worker_left_ends_with_the_stack(settings: Settings, tmp_path: Path) -> None:
    worker, run = start_worker(settings, tmp_path / "run")
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: worker.process() is None)
    assert birth_of(run)
    assert stack.down(settings) == ["prefect-worker"]
    assert birth_of(run) is None


def test_what_no_file_names_any_more_ends_with_the_stack(settings: Settings) -> None:
    service = start_server(settings)
    stack_file(settings).unlink()
    assert stack.down(settings) == ["web-server"]
    assert service.process() is None


def test_a_server_that_ends_with_its_command_is_none_of_the_stack(settings: Settings) -> None:
    script = (
        "import os, sys, time; from pathlib import Path\n"
        "from flows.stack.services import start_service\n"
        "server = start_service(['http.server', '0', '--bind', '127.0.0.1'], Path(sys.argv[1]),\n"
        "                       os.environ, ends_with_parent=True)\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    log = settings.state / "logs" / "prefect-server.log"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(log)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
    ) as command:
        assert command.stdout is not None
        server = int(command.stdout.readline())
        assert stack.down(settings) == []
        assert birth_of(server)
        command.kill()
    wait_for(lambda: birth_of(server) is None)


def test_the_state_of_every_service_is_shown(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("flows.stack.services.ANSWER_SECONDS", 2.0)
    server = start_server(settings)
    assert main(["stack", "status"]) == 0
    assert capsys.readouterr().out.split() == ["web-server", "runs", server.url, server.log]
    worker = start(settings, "prefect-worker", ("small_worker", str(tmp_path / "run")))
    keep_services(settings, [server, worker])
    os.kill(server.pid, signal.SIGSTOP)
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: worker.process() is None)
    with pytest.raises(SystemExit, match="1"):
        main(["stack", "status"])
    silent, ended = capsys.readouterr().out.splitlines()
    assert silent.split()[:4] == ["web-server", "does", "not", "answer"]
    assert ended.split()[:2] == ["prefect-worker", "ended"]
    with pytest.raises(SystemExit, match="1"):
        main(["stack", "status", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert [each["condition"] for each in shown] == ["does not answer", "ended"]
    assert [each["runs"] for each in shown] == [True, False]
    assert "fingerprint" not in shown[0]


def test_it_is_shown_and_stopped_while_the_object_store_is_away(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LSM_STORE", "s3://lsm/store")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    service = start_server(Settings.from_environment())
    assert main(["stack", "status"]) == 0
    assert main(["runs", "sync"]) == 2  # what it sends is in the store
    assert main(["stack", "down"]) == 0
    assert service.process() is None
    said = capsys.readouterr()
    assert "s3://lsm/store" in said.err
    assert "stopped: web-server" in said.out


def test_it_is_shown_and_stopped_while_its_folder_is_read_only(
    settings: Settings, tmp_path: Path
) -> None:
    service = start_server(settings)
    with stack_lock(settings.state):
        pass  # whoever started it has made the file
    # Here it has a parent that does not ask how it ended; the stack's own have none.
    threading.Thread(target=os.waitpid, args=(service.pid, 0), daemon=True).start()
    read_only(tmp_path)
    try:
        shown = lsm_without_privileges("stack", "status")
        stopped = lsm_without_privileges("stack", "down")
        refused = lsm_without_privileges("stack", "restore", str(tmp_path / "copies"))
    finally:
        tmp_path.chmod(0o755)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout == "stopped: web-server\n"
    assert service.process() is None
    assert refused.returncode == 2
    assert "cannot write in the store" in refused.stderr


def test_a_folder_that_cannot_be_made_is_said(settings: Settings, tmp_path: Path) -> None:
    read_only(tmp_path)
    try:
        done = lsm_without_privileges("stack", "down", "--store", str(tmp_path / "new"))
    finally:
        tmp_path.chmod(0o755)
    assert done.returncode == 2
    assert "cannot lock the stack in" in done.stderr
    assert done.stderr.count("\n") == 1


def read_only(folder: Path) -> None:
    (folder / "copies").mkdir()
    (folder / "copies" / "prefect.db").touch()
    folder.chmod(0o555)


def lsm_without_privileges(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as this user, but heed what a folder forbids, which root need not."""
    bounded = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    return subprocess.run(
        [*(bounded if os.geteuid() == 0 else []), sys.executable, "-m", "flows.cli", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


WORKER = {"prefect-worker", "prefect-worker-cells", "supervisor"}


@pytest.mark.parametrize(
    ("variable", "value", "changed"),
    [
        ("LSM_MLFLOW_PORT", "1", {"mlflow-server", *WORKER}),
        ("LSM_WORKERS", "1", WORKER),
        ("AWS_SECRET_ACCESS_KEY", "secret", {"mlflow-server", *WORKER}),
        ("PREFECT_API_URL", "http://127.0.0.1:1/api", {"prefect-server", *WORKER}),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:1", {"mlflow-server", *WORKER}),
        (
            "LSM_DATABASE",
            "postgresql://me:secret@127.0.0.1:1",
            {"prefect-server", "mlflow-server", *WORKER},
        ),
    ],
)
def test_what_runs_with_other_settings_is_named_and_left_alone(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
    value: str,
    changed: set[str],
) -> None:
    monkeypatch.chdir(REPOSITORY)
    running = written_down(settings, tmp_path)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ServiceFailed) as refused:
        stack.up(Settings.from_environment())
    said = str(refused.value)
    named = said.removeprefix("running with other settings than those of now: ").partition("; ")
    assert set(named[0].split(", ")) == changed
    assert named[2] == "`lsm stack down`, then `lsm stack up` applies them"
    assert services(settings) == running
    assert running[0].process() is not None
    assert "secret" not in said + stack_file(settings).read_text()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LSM_DASK", ""), ("EDITOR", "ed"), ("LSM_SERVICE", "x"), ("PREFECT__FLOW_RUN_ID", "x")],
)
def test_what_no_service_reads_is_no_other_setting(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    before = {each.name: each.fingerprint for each in stack.wanted(settings)}
    monkeypatch.setenv(variable, value)
    now = stack.wanted(Settings.from_environment())
    assert {each.name: each.fingerprint for each in now} == before


def started_by(settings: Settings) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the workers of some settings: each with its command, and what it adds for its runs."""
    return {
        each.name: (" ".join(each.command[2:]), dict(each.variables))
        for each in stack.wanted(settings)
        if each.name.startswith(stack.WORKER)
    }


def test_every_gpu_has_a_worker_that_sees_only_that_one(settings: Settings) -> None:
    cells = "start --pool lsm-cells --limit 1"
    found = started_by(replace(settings, gpus="0,2", n_workers=8))
    assert found == {
        "prefect-worker": ("start --pool lsm-control", {}),
        "prefect-worker-gpu-0": (cells, {"CUDA_VISIBLE_DEVICES": "0", "LSM_WORKERS": "4"}),
        "prefect-worker-gpu-2": (cells, {"CUDA_VISIBLE_DEVICES": "2", "LSM_WORKERS": "4"}),
    }


def test_without_a_gpu_one_worker_trains_a_cell_a_core(settings: Settings) -> None:
    found = started_by(replace(settings, n_workers=3))
    assert found == {
        "prefect-worker": ("start --pool lsm-control", {}),
        "prefect-worker-cells": ("start --pool lsm-cells --limit 3", {"LSM_WORKERS": "1"}),
    }


def test_a_pool_of_another_type_has_workers_of_its_own(settings: Settings) -> None:
    assert list(started_by(replace(settings, cell_pool_type="kubernetes"))) == ["prefect-worker"]


def written_down(settings: Settings, folder: Path) -> list[Service]:
    """Write one process down as all services: what counts is what they were started with."""
    one = start(settings, "sleeper", ("small_worker", str(folder / "run")))
    running = [
        replace(one, name=each.name, command=each.command, fingerprint=each.fingerprint)
        for each in stack.wanted(settings)
    ]
    keep_services(settings, running)
    return running
