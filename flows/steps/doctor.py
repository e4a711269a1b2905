"""Look an installation over and say, one line a thing, what is wrong and what to do.

Everything here asks; the only writing is a probe in the store, which is removed again. Servers are
asked over HTTP, as anybody would.
"""

import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from flows.settings import Settings
from flows.steps.server_checks import (
    Finding,
    Servers,
    check_dask,
    check_ports,
    stack_services,
)
from storage.claims import left_claims
from storage.dataset_reader import open_dataset
from storage.errors import DatasetIncomplete, StorageError
from storage.location import Location
from storage.processes import birth_of
from storage.run_journal import journal_folder, journals, without_credentials

LITTLE_SPACE, HARDLY_ANY_SPACE = 20e9, 2e9
CLOCK_TOLERANCE = 60.0
PINS = Path(__file__).parents[2] / "constraints.txt"
"""Beside the sources; what is installed as a package has none."""


def examine(
    settings: Settings, environment: Mapping[str, str], *, data: bool = False
) -> Iterator[Finding]:
    """Yield a finding for every check; a check that fails is a problem, not the end.

    With `data`, every dataset is read and compared with its checksums.
    """
    servers = Servers(settings, environment)
    checks: dict[str, Callable[[], Finding]] = {
        "python": check_python,
        "packages": check_packages,
        "store": lambda: check_store(settings.root),
        "space": lambda: check_space(settings.state),
        "datasets": lambda: check_datasets(settings.root, data),
        "prefect": servers.check_prefect,
        "worker": servers.check_worker,
        "deployments": servers.check_deployments,
        "automations": servers.check_automations,
        "mlflow": servers.check_mlflow,
        "ports": lambda: check_ports(settings),
        "dask": lambda: check_dask(settings.dask_address),
        "device": lambda: check_device(settings.device),
        "browser": check_browser,
        "clock": lambda: check_clock(settings.state, servers.dates),
        "stack": lambda: check_stack(settings.state),
        "left over": lambda: check_leftovers(settings.state),
        "claims": lambda: check_claims(settings.root),
        "journals": lambda: check_journals(settings.root),
    }
    for subject, check in checks.items():
        try:
            yield check()
        except Exception as error:
            said = " ".join(without_credentials(str(error)).split())
            yield Finding(subject, "problem", f"{type(error).__name__}: {said}")


def check_python() -> Finding:
    """Check the interpreter."""
    found = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Finding("python", "ok", found)
    return Finding("python", "problem", f"{found} is not supported; use Python 3.11 or 3.12")


def check_packages() -> Finding:
    """Check versions: bounds that are known to break are problems, other pins warnings."""
    from packaging.requirements import Requirement

    broken = []
    for text in requires("lsm") or []:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            found = _installed(needed.name)
            if found is None:
                broken.append(f"{needed.name} is missing")
            elif not needed.specifier.contains(found, prereleases=True):
                broken.append(f"{needed.name} {found} is not {needed.specifier}")
    if broken:
        advice = "`pip install --constraint constraints.txt --editable .`"
        return Finding("packages", "problem", f"{_some(broken)}; {advice}")
    if not PINS.is_file():
        return Finding("packages", "ok", "within all bounds; no constraints.txt to compare with")
    pins = _pins(PINS)
    other = [
        f"{name} {found} instead of {pinned}"
        for name, pinned in pins.items()
        if (found := _installed(name)) is not None and found.partition("+")[0] != pinned
    ]
    if other:
        return Finding("packages", "warning", f"{_some(other)}; `make setup` installs the pinned")
    return Finding("packages", "ok", f"within all bounds, {len(pins)} pins agree")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    pairs = [line.partition(";")[0].strip().split("==") for line in lines if "==" in line]
    return {name: pinned for name, pinned in pairs if not name.startswith("#")}


def check_store(root: Location) -> Finding:
    """Check that the store takes a file, replaces it in one step and gives it back."""
    place = without_credentials(str(root))
    probe = root / f".doctor-{uuid.uuid4().hex}"
    try:
        for content in (b"first", b"second"):
            probe.write_bytes(content)
        is_good = probe.read_bytes() == b"second" and probe.name in root.names()
        probe.remove()
    except (OSError, StorageError) as error:
        advice = "mend it, or choose another with LSM_STORE"
        said = str(error).partition("; ")[0]
        return Finding("store", "problem", f"{said}; {advice}")
    if not is_good or probe.exists():
        return Finding("store", "problem", f"{place} does not give back what was written")
    return Finding("store", "ok", f"{place} takes, replaces, lists and removes files")


def check_space(folder: Path) -> Finding:
    """Check that there is room for data and checkpoints."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / 1e9:.1f} GB free for {folder}"
    if free < HARDLY_ANY_SPACE:
        return Finding("space", "problem", f"{text}; make room before anything is started")
    if free < LITTLE_SPACE:
        return Finding("space", "warning", f"{text}; the paper preset needs more")
    return Finding("space", "ok", text)


def check_datasets(root: Location, data: bool) -> Finding:
    """Check that every dataset opens, and with `data` that it is as it was written."""
    from storage.integrity import verify_dataset

    whole, unfinished, damaged = 0, 0, []
    for benchmark in (root / "datasets").names():
        for name in (root / "datasets" / benchmark).names():
            if name.endswith(".zarr"):
                try:
                    place = root / "datasets" / benchmark / name
                    verify_dataset(place) if data else open_dataset(place)
                    whole += 1
                except DatasetIncomplete:
                    unfinished += 1
                except StorageError as error:
                    damaged.append(str(error))
    if damaged:
        return Finding("datasets", "problem", _some(damaged))
    text = f"{whole} complete{' and as they were written' if data and whole else ''}"
    if unfinished:
        advice = "`lsm prepare` with the same arguments ends them"
        return Finding("datasets", "warning", f"{text}, {unfinished} unfinished; {advice}")
    return Finding("datasets", "ok", text)


def check_device(wanted: str) -> Finding:
    """Check that what training is to run on is there."""
    import torch

    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cuda" and not n_gpus:
        text = "LSM_DEVICE is cuda, but torch sees no GPU; driver and CUDA build of torch?"
        return Finding("device", "problem", text)
    if n_gpus:
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(n_gpus))
        return Finding("device", "ok", f"{n_gpus} GPU: {names}")
    if shutil.which("nvidia-smi"):
        text = "there is a driver, but torch sees no GPU; install the CUDA build of torch"
        return Finding("device", "warning", text)
    return Finding("device", "ok", f"no GPU; {torch.get_num_threads()} threads of the CPU")


def check_browser() -> Finding:
    """Check for a browser, by which the tests look at pages."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found:
        return Finding("browser", "ok", found)
    return Finding("browser", "warning", "none found; only tests that look at pages need one")


def check_clock(folder: Path, dates: Mapping[str, datetime]) -> Finding:
    """Check the clock against that of the disk and of the servers."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".clock-{uuid.uuid4().hex}"
    probe.touch()
    offsets = {"the disk": probe.stat().st_mtime - time.time()}
    probe.unlink()
    now = datetime.now(UTC)
    offsets |= {name: (date - now).total_seconds() for name, date in dates.items()}
    name, offset = max(offsets.items(), key=lambda each: abs(each[1]))
    if abs(offset) > CLOCK_TOLERANCE:
        text = f"{name} differs by {offset:.0f} s; schedules and times of runs will be wrong"
        return Finding("clock", "problem", f"{text}; synchronise the clocks")
    return Finding("clock", "ok", f"agrees with {', '.join(offsets)}")


def check_stack(state: Path) -> Finding:
    """Check that what the stack started still runs."""
    services = stack_services(state)
    # A number alone may be another process's by now.
    down = [each["name"] for each in services if birth_of(each["pid"]) != each["born"]]
    if down:
        text = f"{', '.join(down)} is down; `lsm stack up` starts it again"
        return Finding("stack", "problem", text)
    return Finding("stack", "ok", f"{len(services)} services run" if services else "not started")


def check_leftovers(state: Path) -> Finding:
    """Check for files that killed processes left, and locks that nobody holds."""
    import fcntl

    a_day_ago = time.time() - 86_400
    partial = [
        path
        for path in state.rglob("*.partial")
        if path.is_file() and path.stat().st_mtime < a_day_ago
    ]
    stale = []
    for lock in (state / "journal").glob("*.lock"):
        if lock.name == "database.lock" or lock.with_suffix(".jsonl").exists():
            continue
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stale.append(lock)
            except BlockingIOError:
                continue
    if partial or stale:
        text = f"{len(partial)} unfinished files and {len(stale)} locks of processes that are gone"
        advice = "harmless; remove them: " + _some([str(path) for path in (*partial, *stale)])
        return Finding("left over", "warning", f"{text}; {advice}")
    return Finding("left over", "ok", "nothing")


def check_claims(root: Location) -> Finding:
    """Check for work that dead processes have claimed."""
    dead, n_alive = left_claims(root / "claims")
    if dead:
        advice = "harmless, whoever wants the same takes it over"
        return Finding("claims", "warning", f"of processes that are gone: {_some(dead)}; {advice}")
    return Finding("claims", "ok", f"{n_alive} held, none by a process that is gone")


def check_journals(root: Location) -> Finding:
    """Check that the tracking store has everything that runs recorded."""
    waiting = refused = 0
    for journal in journals(journal_folder(root)):
        waiting += bool(journal.waiting)
    refused = len(list(journal_folder(root).glob("*.refused")))
    if waiting:
        text = f"{waiting} runs have entries that MLflow lacks; `lsm runs sync` sends them"
        return Finding("journals", "warning", text)
    if refused:
        text = f"MLflow refused entries of {refused} runs, kept in {journal_folder(root)}"
        return Finding("journals", "warning", text)
    return Finding("journals", "ok", "nothing waits")


def _some(texts: list[str]) -> str:
    """Return the first few, and how many more there are."""
    shown = ", ".join(texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3} more"
