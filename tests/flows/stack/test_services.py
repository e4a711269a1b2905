import subprocess
import sys
import time
from pathlib import Path

import psutil

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
    repository = Path(__file__).parents[3]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "log")]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    pid = int(done.stdout)
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} outlived its parent")
