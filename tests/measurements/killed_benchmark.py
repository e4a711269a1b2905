"""A benchmark that is killed again and again, against one that nobody touches: the same table?

    python -m tests.measurements.killed_benchmark --preset quick --kills 3
    python -m tests.measurements.killed_benchmark --benchmarks burgers darcy --models lsm

Both run what `make benchmark` does, `lsm benchmark` and then the transfer study, in stores of their
own, one after the other; the study is left out if benchmarks are named. The kills come at random
moments of the time that the whole one took, by SIGKILL to the command and all that it started:
Prefect's server, the trainings, the solvers. Ends with 1 if a figure differs in its last digit.
"""

import argparse
import json
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.end_to_end.local_stack import REPOSITORY, environment
from tests.end_to_end.test_recovery import kill_family

Errors = dict[tuple[str, str, str, int], float]
"""What was measured, by benchmark, model, setting of a study, and seed."""


def commands(preset: str, benchmarks: list[str], models: list[str]) -> str:
    """Return the commands as `make benchmark` has them, for a shell."""
    start = [sys.executable, "-m", "flows.cli"]
    each = ["--json", "--preset", preset]
    first = [*start, "benchmark", *each, "--models", *models, "--benchmarks", *benchmarks]
    second = [*start, "study", "transfer", *each, "--models", "lsm"]
    return " && ".join(map(shlex.join, [first, second] if benchmarks == ["all"] else [first]))


def begin(command: str, store: Path) -> subprocess.Popen[str]:
    """Start a benchmark on a server of its own."""
    settings = environment(store, PREFECT_API_URL="http://127.0.0.1:9/api")
    return subprocess.Popen(
        ["sh", "-c", command],
        cwd=REPOSITORY,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def end(started: subprocess.Popen[str]) -> Errors:
    """Wait for a benchmark and return the error of every cell."""
    said, _ = started.communicate()
    if started.returncode:
        raise SystemExit(f"the benchmark ended with {started.returncode}")
    results: list[dict[str, Any]] = []
    for line in said.splitlines():
        outcome = json.loads(line)
        results += outcome["results"] if isinstance(outcome, dict) else outcome
    return {
        (r["benchmark"], r["model"], r.get("setting", ""), r["seed"]): r["test"]["rel_l2"]
        for r in results
    }


def main() -> int:
    """Print both tables side by side; return 0 if they are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--benchmarks", nargs="+", default=["all"])
    parser.add_argument("--models", nargs="+", default=["lsm", "fno", "unet"])
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    command = commands(options.preset, options.benchmarks, options.models)
    moments = random.Random()
    with tempfile.TemporaryDirectory(prefix="killed-") as folder:
        began = time.monotonic()
        whole = end(begin(command, Path(folder) / "whole"))
        seconds = time.monotonic() - began
        print(f"whole: {len(whole)} cells in {seconds:.0f} s", flush=True)
        for number in range(options.kills):
            started = begin(command, Path(folder) / "killed")
            # The parts before the kills add up to less than the whole.
            pause = moments.uniform(0.1, 0.9) * seconds / options.kills
            time.sleep(pause)
            assert started.poll() is None, "it had ended before it was killed"
            kill_family(psutil.Process(started.pid))
            started.communicate()
            print(f"kill {number + 1} after {pause:.0f} s", flush=True)
        killed = end(begin(command, Path(folder) / "killed"))
    for cell, error in whole.items():
        mark = "" if killed.get(cell) == error else "  differs"
        print(f"{cell[0]:15} {cell[1]:10} {cell[2]:18} {error!r:22} {killed.get(cell)!r:22}{mark}")
    print("the same table" if killed == whole else "ANOTHER TABLE")
    return 0 if killed == whole else 1


if __name__ == "__main__":
    sys.exit(main())
