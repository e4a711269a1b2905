"""A place that holds files: a folder, memory or an object store, under one interface."""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from storage.errors import StoreUnavailable

SCHEMES = ("file", "memory", "s3", "gs", "az", "abfs", "http", "https")


@dataclass(frozen=True)
class Location:
    """A file or folder named by a URL; making one touches nothing.

    Writing is atomic: a reader sees the old bytes, the new bytes or no file, never a part.
    """

    url: str

    @classmethod
    def parse(cls, text: str) -> "Location":
        """Return the location a user means by a URL or a path of this machine."""
        if "://" not in text:
            return cls(Path(text).expanduser().absolute().as_uri())
        scheme = text.split("://", 1)[0]
        if scheme not in SCHEMES:
            raise ValueError(
                f"the store address {text!r} starts with {scheme}://, which is not known here; "
                f"use a folder or one of {', '.join(name + '://' for name in SCHEMES)}"
            )
        return cls(text.rstrip("/"))

    def __truediv__(self, name: str) -> "Location":
        """Return the location of a child; a name cannot lead out of its parent."""
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or name.startswith("/"):
            raise ValueError(f"{name!r} is not the name of something inside {self.url}")
        return Location(f"{self.url}/{'/'.join(parts)}")

    def __str__(self) -> str:
        return str(self.local_path or self.url)

    @property
    def name(self) -> str:
        """Return the last part of the address."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def local_path(self) -> Path | None:
        """Return the path on this machine, or None elsewhere."""
        if not self.url.startswith("file://"):
            return None
        return Path(fsspec.core.url_to_fs(self.url)[1])

    def read_bytes(self) -> bytes:
        """Return the content of a file; FileNotFoundError if there is none."""
        filesystem, path = self._open()
        return bytes(filesystem.cat_file(path))

    def write_bytes(self, content: bytes) -> None:
        """Write a whole file, replacing an older one, in one step for every reader."""
        filesystem, path = self._open()
        if self.local_path is None:
            # Memory and object stores publish an object when its upload ends.
            filesystem.pipe_file(path, content)
            return
        _replace_file(Path(path), content)

    def exists(self) -> bool:
        """Return whether a file or folder is there."""
        filesystem, path = self._open()
        return bool(filesystem.exists(path))

    def names(self) -> list[str]:
        """Return the names of the children, sorted; none if there is no such folder."""
        filesystem, path = self._open()
        filesystem.invalidate_cache()
        try:
            found = filesystem.ls(path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        own = path.rstrip("/")
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in found if entry != own)

    def remove(self) -> None:
        """Remove a file or a folder with all it holds; nothing happens if there is none."""
        filesystem, path = self._open()
        if filesystem.exists(path):
            filesystem.rm(path, recursive=True)

    def zarr_store(self, *, read_only: bool = False) -> Store:
        """Return the folder as a zarr store."""
        if self.local_path is not None:
            return LocalStore(self.local_path, read_only=read_only)
        return FsspecStore.from_url(self.url, read_only=read_only)

    def require_writable(self) -> None:
        """Raise StoreUnavailable unless files can be written here."""
        probe = self / f".probe-{uuid.uuid4().hex}"
        try:
            probe.write_bytes(b"")
            probe.remove()
        except (OSError, PermissionError) as error:
            raise StoreUnavailable(
                f"cannot write in the store {self}: {error.strerror or error}; "
                "choose another one with LSM_STORE or --store"
            ) from error

    def _open(self) -> tuple[Any, str]:
        return fsspec.core.url_to_fs(self.url)


def _replace_file(path: Path, content: bytes) -> None:
    """Write beside the file, force to disk, then rename over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
