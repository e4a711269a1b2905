import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).parents[3]
SCRIPT = """
import os, signal, sys
from pathlib import Path
from flows.stack.services import start_service
service = start_service(["http.server", "0", "--bind", "127.0.0.1"], Path(sys.argv[1]),
                        os.environ, ends_with_parent=True)
print(service.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_service_ends_with_the_command_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "log")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    assert_ends(int(done.stdout))


SERVER = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
FOREGROUND = """
import os, sys
from flows.stack.services import run_server
sys.exit(run_server([sys.executable, "-c", sys.argv[1]], os.environ))
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_server_in_the_foreground_ends_with_its_command(how: signal.Signals) -> None:
    command = [sys.executable, "-c", FOREGROUND, SERVER]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout
        server = int(running.stdout.readline())
        while running.poll() is None:  # an interrupt in its first milliseconds may be lost
            running.send_signal(how)
            with suppress(subprocess.TimeoutExpired):
                running.wait(10)
        assert running.returncode != 0
    assert_ends(server)


def test_a_command_ends_with_the_code_of_its_server() -> None:
    command = [sys.executable, "-c", FOREGROUND, "raise SystemExit(3)"]
    assert subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 3


def assert_ends(pid: int) -> None:
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} outlived its parent")
