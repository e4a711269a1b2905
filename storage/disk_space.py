"""Whether something fits on the disk, asked before it is written."""

import shutil
from pathlib import Path

from storage.errors import StoreUnavailable


def require_space(folder: Path, n_bytes: int, purpose: str) -> None:
    """Raise StoreUnavailable unless a folder, which need not exist yet, can take some bytes."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise StoreUnavailable(
            f"{purpose} needs {n_bytes / 1e9:.2f} GB but {folder} has {free / 1e9:.2f} GB free; "
            "make room or choose another store with LSM_STORE or --store"
        )
