"""Look an installation over and say, one line a thing, what is wrong and what to do.

Everything here asks; the only writing is a probe in the store, which is removed again.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from flows.settings import Settings
from flows.stack.record import services
from flows.stack.server_checks import Finding, PrefectServer, check_dask, check_mlflow
from storage.credentials import without_credentials
from storage.datasets.reader import open_dataset, verify_dataset
from storage.errors import DatasetIncomplete, StorageError
from storage.location import Location

LITTLE_SPACE, HARDLY_ANY_SPACE = 20e9, 2e9
PINS = Path(__file__).parents[2] / "constraints.txt"
"""Beside the sources; what is installed as a package has none."""


def examine(
    settings: Settings, environment: Mapping[str, str], *, data: bool = False
) -> Iterator[Finding]:
    """Yield a finding for every check; a check that fails is a problem, not the end.

    With `data`, every dataset is read and compared with its checksums.
    """
    with closing(PrefectServer(settings.prefect_api, environment)) as server:
        checks: dict[str, Callable[[], Finding]] = {
            "packages": check_packages,
            "store": lambda: check_store(settings.root),
            "space": lambda: check_space(settings.state),
            "datasets": lambda: check_datasets(settings.root, data),
            "prefect": server.check_prefect,
            "worker": server.check_worker,
            "deployments": server.check_deployments,
            "automations": server.check_automations,
            "mlflow": lambda: check_mlflow(settings, environment),
            "dask": lambda: check_dask(settings.dask_address),
            "device": lambda: check_device(settings.device),
            "stack": lambda: check_stack(settings),
        }
        for subject, check in checks.items():
            try:
                yield check()
            except Exception as error:
                said = " ".join(without_credentials(str(error)).split())
                yield Finding(subject, "problem", f"{type(error).__name__}: {said}")


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


def check_stack(settings: Settings) -> Finding:
    """Check that what the stack started still runs."""
    started = services(settings)
    down = [service.name for service in started if service.process() is None]
    if down:
        text = f"{', '.join(down)} is down; `lsm stack up` starts it again"
        return Finding("stack", "problem", text)
    return Finding("stack", "ok", f"{len(started)} services run" if started else "not started")


def _some(texts: list[str]) -> str:
    """Return the first few, and how many more there are."""
    shown = ", ".join(texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3} more"
