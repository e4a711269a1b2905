"""Which process is which: numbers are given again, and clocks are set."""

import sys
from pathlib import Path

import psutil


def birth_of(pid: int) -> float | None:
    """Return when a process was born, in a measure of its own; None if it has ended.

    Number and birth together name a process until the machine is started again. On Linux the birth
    is counted from the start of the machine: the time that psutil tells is computed from the clock
    of today, and a process seems to be another one after that is set.
    """
    if sys.platform == "linux":
        try:
            # The name, in parentheses, may hold anything; what follows it is numbers.
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
            fields = state.split()
            return None if fields[0] == "Z" else float(fields[19])
        except (FileNotFoundError, ProcessLookupError):
            return None
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
