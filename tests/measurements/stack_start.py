"""Print how long the local stack takes to be healthy and to be stopped, and what is left of it.

    python -m tests.measurements.stack_start

Starts Prefect's server, a worker, MLflow and the supervisor on free ports and on a new store, whose
databases are made at this start. Healthy is when `lsm stack up` ends: then both servers answer and
the flows are deployed. Ends with 1 if that took more than 60 seconds or if a process is left.
"""

import sys
import tempfile
import time
from pathlib import Path

from flows.engine.own_server import free_port
from flows.stack.services import marked_processes
from tests.end_to_end.local_stack import environment, run

ALLOWED_SECONDS = 60.0


def timed(action: str, settings: dict[str, str]) -> float:
    """Return the seconds of `lsm stack ACTION`."""
    began = time.monotonic()
    done = run(["flows.cli", "stack", action], settings, 900)
    seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"`lsm stack {action}` ended with {done.returncode}: {done.stderr}")
    return seconds


def main() -> int:
    """Print the times; return 0 if the start was quick enough and nothing is left."""
    with tempfile.TemporaryDirectory(prefix="stack-") as store:
        settings = environment(
            store,
            PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api",
            LSM_MLFLOW_PORT=str(free_port()),
        )
        try:
            healthy = timed("up", settings)
            print(f"healthy after {healthy:.1f} s", flush=True)
        finally:
            stopped = timed("down", settings)
        left = marked_processes(Path(store) / "logs")
    print(f"stopped after {stopped:.1f} s, {len(left)} processes left")
    return 0 if healthy <= ALLOWED_SECONDS and not left else 1


if __name__ == "__main__":
    sys.exit(main())
