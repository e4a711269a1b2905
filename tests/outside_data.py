"""Data that nobody here made: files beside the repository, and those of a package on PyPI.

    .venv/bin/python -m tests.outside_data      brings the latter to build/outside, 65 MB

The package smithers (MIT) is not installed for them: its wheel has a package `tests`, like ours.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BESIDE = REPOSITORY.parent / "shared" / "data" / "outside"
BROUGHT = REPOSITORY / "build" / "outside"
WHEEL = "smithers-0.0.1-py3-none-any.whl"
HASHES = {
    WHEEL: "23d516018b5257b328702dd33871b637bf98cb2432cb03da41bf773768410f78",
    "darcy_train_16.pt": "0be662ac",
    "darcy_test_16.pt": "d2b19af9",
    "burgers_train_16.pt": "d12335ad",
    "burgers_test_16.pt": "70bb1591",
    "holed_poisson.pt": "1fda41d1",
}
"""How the sha256 of each file begins."""


def beside(name: str) -> Path | None:
    """Return a file that lies beside the repository, None if it does not."""
    path = BESIDE / name
    return checked(path) if path.exists() else None


def of_smithers(name: str) -> Path | None:
    """Return the folder of a dataset of smithers, None if it was not brought."""
    folder = BROUGHT / "smithers" / "dataset" / "datasets" / name
    return folder if folder.is_dir() else None


def bring() -> str:
    """Bring the datasets of smithers and return an empty text, or why they cannot be had."""
    if of_smithers("unsteady_heat"):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        wanted = ["--no-deps", "--dest", folder, "smithers==0.0.1"]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            return f"the package smithers, which carries it, cannot be had: {last}"
        with zipfile.ZipFile(checked(Path(folder) / WHEEL)) as wheel:
            arrays = [each for each in wheel.namelist() if each.endswith(".npy")]
            wheel.extractall(BROUGHT, sorted(arrays))
    return ""


def checked(path: Path) -> Path:
    """Return the path of a file with the bytes that are meant; ValueError for others."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if not found.startswith(HASHES[path.name]):
        raise ValueError(f"{path.name} has the sha256 {found}, not {HASHES[path.name]}")
    return path


if __name__ == "__main__":
    print(bring() or f"the datasets of smithers are in {BROUGHT}")
