"""The page of the fault table, as it is kept in the repository."""

import os
import platform
import re
from pathlib import Path

from tests.faults.table import Fault, Tally, markdown_table

HEAD = """\
# Faults

What happens when something breaks, measured by breaking it. `make faults` tries every fault,
prints this table and writes this page; it takes hours, continues where it was stopped, and ends
with an error if a promise was not kept once.
"""

PROTOCOL = """\
## How it is counted

Every trial breaks something once, at a random moment between the beginning and the end of some
small work, mends it, and then lets the work end: a command is called again, as its user would;
a run of a deployment is left alone, and the server brings it back if it must. A trial in which
the work had ended before the fault came is not counted, but repeated.

- **Lost** are results that were accepted and are not there afterwards: blocks of data that were
  recorded, epochs that the tracking store lacks, a run without its result; and values read from
  a damaged file as if they were good. **Duplicated** are samples, epochs or runs that are there
  twice. Both are counted by reading the store and MLflow, not by asking the program.
- **Not recovered** are trials that ended in another way than promised: another error than the
  one said, other bytes, other weights, or work that did not end. Data is compared byte for byte
  with data that nothing happened to, and so are weights and results, without their times.
- Processes are killed by SIGKILL, servers with all their children, workers alone in two of three
  trials and with their runs in the third. What died is started again by the trial, as the stack's
  supervisor does; nobody touches a run.
- Cells of a comparison are runs on a pool, with two at once. A hit comes at a random moment of the
  time that a run takes; one that meets all runs, within 20 seconds after the last. The trial counts
  all cells that were under way. A cell may be hit again, but not at its last start: that it stays
  down then is another promise. All these trials have one stack, on PostgreSQL.
- A worker that is cut off runs in a network namespace with an address of its own, and so do the
  server, the object store with MLflow, the control worker and a second cell worker; its cable is
  pulled for two minutes. That needs root on Linux.
- PostgreSQL's files are on a real disk; a loss of power, which also loses what the disk had not
  written, is not tried.
- The full and the read-only disk are a file system in memory, mounted for the trial, which
  needs root on Linux. Half of the trials with a full disk generate, half train.
- The clock jumps a day ahead or back where Python reads it (`time.time`, `time.time_ns`), in
  the process that trains; the machine's own clock is left alone.
- The network is a process between the client and `rclone serve s3` on loopback, which cuts
  connections in the middle of a write, once or again and again, or delays every message.
- The corrupt chunk has one bit turned, in half of the trials before the dataset is complete.
  Two processes begin the same work within a second; half of the trials generate, half train.
"""


def page(faults: list[Fault], results: dict[str, Tally]) -> str:
    """Return the page: table, day, machine and how it was counted."""
    days = sorted({tally.day for tally in results.values() if tally.day})
    when = " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "not measured"
    said = "\n".join(
        f"- {name}: {_shown(failure)}"
        for name, tally in results.items()
        for failure in tally.failures
    )
    told = f"\n## What was not kept\n\n{said}\n" if said else ""
    where = f"Measured {when} on {machine()}."
    table = markdown_table(faults, results)
    return f"{HEAD}\n{where}\n\n{table}\n{_pending(faults, results)}{told}\n{PROTOCOL}"


def _pending(faults: list[Fault], results: dict[str, Tally]) -> str:
    """Return which faults were not tried as often as they are to be."""
    tried = {fault.name: results.get(fault.name, Tally()).tried for fault in faults}
    short = [
        f"- {fault.name}: {tried[fault.name]} of {fault.trials}"
        for fault in faults
        if tried[fault.name] < fault.trials
    ]
    head = "Trials that are still to be made; `make faults` continues with them:"
    return "\n".join(["", head, "", *short, ""]) if short else ""


def machine() -> str:
    """Return the kind of this machine, without its name."""
    number = {1: "one", 2: "two", 4: "four", 8: "eight"}.get(os.cpu_count() or 1, os.cpu_count())
    kind = "virtual machine" if _is_virtual() else "machine"
    return f"a {number}-core {platform.machine().replace('_', '-')} {kind} with {platform.system()}"


def _is_virtual() -> bool:
    described = Path("/proc/cpuinfo")
    return described.exists() and "hypervisor" in described.read_text()


def _shown(failure: str) -> str:
    """Return what went wrong without the folders of this machine."""
    return re.sub(r"(/[\w.-]+)+/", "", failure)
