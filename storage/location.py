"""A place that holds files: a folder, memory or an object store, under one interface."""

import asyncio
import atexit
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from storage.credentials import has_password
from storage.errors import StorageError, StoreInterrupted, StoreUnavailable, translated

SCHEMES = ("file", "memory", "s3", "gs", "az", "abfs", "http", "https")
PART_BYTES = 2**24
"""How much of a large object goes to an object store in one request, and is sent again if lost."""
REMOVALS = 10
TRANSPORTS = ("botocore", "aiobotocore", "aiohttp", "fsspec", "asyncio")


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
        scheme = text.partition("://")[0]
        # Addresses are shown and kept; whoever may read them is not to learn a password.
        if has_password(text):
            raise ValueError(
                f"the store address that starts with {scheme}:// holds a password; leave it out "
                "and give credentials by the environment"
            )
        if scheme not in SCHEMES:
            raise ValueError(
                f"the store address starts with {scheme}://, which is not known here; "
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
        with self.reached():
            return bytes(filesystem.cat_file(path))

    def write_bytes(self, content: bytes) -> None:
        """Write a whole file, replacing an older one, in one step for every reader."""
        filesystem, path = self._open()
        with self.reached(writing=True):
            if self.local_path is not None:
                _replace_file(Path(path), content)
            elif self.url.startswith("s3://"):
                # An object appears when its last part has come; a failure removes the parts.
                filesystem.pipe_file(path, content, chunksize=PART_BYTES)
            else:
                filesystem.pipe_file(path, content)

    def exists(self) -> bool:
        """Return whether a file or folder is there."""
        filesystem, path = self._open()
        with self.reached():
            return bool(filesystem.exists(path))

    def names(self) -> list[str]:
        """Return the names of the children, sorted; none if there is no such folder."""
        filesystem, path = self._open()
        try:
            with self.reached():
                found = filesystem.ls(path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        own = path.rstrip("/")
        return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in found if entry != own)

    def n_bytes(self) -> int:
        """Return the size of a file, or of all files in a folder; 0 if there is none."""
        filesystem, path = self._open()
        try:
            with self.reached():
                return int(filesystem.du(path))
        except FileNotFoundError:
            return 0

    def remove(self) -> None:
        """Remove a file or a folder with all it holds; nothing happens if there is none."""
        filesystem, path = self._open()
        with self.reached(writing=True):
            for _ in range(REMOVALS):
                if not filesystem.exists(path):
                    return
                # Another process may remove the same, or write in it, at the same time.
                try:
                    filesystem.rm(path, recursive=True)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise

    def zarr_store(self, *, read_only: bool = False) -> Store:
        """Return the folder as a zarr store."""
        if self.local_path is not None:
            return LocalStore(self.local_path, read_only=read_only)
        if self.url.startswith("s3://"):
            _close_clients_at_exit()
        return FsspecStore.from_url(
            self.url, storage_options={"use_listings_cache": False}, read_only=read_only
        )

    def require_writable(self) -> None:
        """Raise StoreUnavailable unless files can be written here.

        A network that broke down is StoreInterrupted here, too: a run that began then comes back.
        """
        probe = self / f".probe-{uuid.uuid4().hex}"
        try:
            probe.write_bytes(b"")
            probe.remove()
        except (OSError, StorageError) as error:
            said = error if isinstance(error, StorageError) else error.strerror or error
            kind = StoreInterrupted if isinstance(error, StoreInterrupted) else StoreUnavailable
            raise kind(
                f"cannot write in the store {self}: {str(said).partition('; ')[0]}; "
                "choose another one with LSM_STORE or --store"
            ) from error

    def reached(self, *, writing: bool = False) -> AbstractContextManager[None]:
        """Turn what a disk or a network does while the block runs into one sentence.

        StoreUnavailable says what only a person can mend: a full or read-only disk, wrong keys, no
        such bucket. StoreInterrupted says that another try may help. That something is not there
        is FileNotFoundError when reading, as everywhere. Nothing here holds a password.
        """
        return translated(Exception, into=lambda error: self._explain(error, writing))

    def _explain(self, error: Exception, writing: bool) -> StorageError | None:
        """Return what to say of an error, or None if it says all that is to be said."""
        verb = "write" if writing else "read"
        said = " ".join(str(getattr(error, "strerror", None) or error).split())
        is_absent = isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
        if is_absent and not writing:
            return None
        if self.local_path is not None:
            if not isinstance(error, OSError):
                return None
            return StoreUnavailable(f"cannot {verb} {self}: {said}; mend it, or use another store")
        name = type(error).__name__
        if is_absent or isinstance(error, PermissionError) or "Credentials" in name:
            return StoreUnavailable(
                f"cannot {verb} {self}: {said or name}; check the bucket, its keys and LSM_STORE"
            )
        package = type(error).__module__.partition(".")[0]
        if package in TRANSPORTS or isinstance(error, OSError):
            return StoreInterrupted(
                f"cannot {verb} {self}: {name} {said}".rstrip() + "; nothing half-written counts, "
                "so trying again continues"
            )
        return None

    def _open(self) -> tuple[Any, str]:
        # Without a cache of listings: other processes write here, too.
        return fsspec.core.url_to_fs(self.url, use_listings_cache=False)


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """Yield where to write a file or folder of this machine, which appears when the block ends.

    It is written beside its place, forced to disk, then renamed; if the block fails, nothing is
    left of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        if partial.is_file():
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


def require_space(folder: Path, n_bytes: int, purpose: str) -> None:
    """Raise StoreUnavailable unless a folder, which need not exist yet, can take some bytes."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free
    if n_bytes > free:
        raise StoreUnavailable(
            f"{purpose} needs {n_bytes / 1e9:.2f} GB but {folder} has {free / 1e9:.2f} GB free; "
            "make room or choose another store with LSM_STORE or --store"
        )


def _replace_file(path: Path, content: bytes) -> None:
    for attempt in range(REMOVALS):
        try:
            with whole_or_nothing(path) as partial:
                partial.write_bytes(content)
            return
        except FileNotFoundError:
            # Another process may remove the folder at the same time.
            if attempt == REMOVALS - 1:
                raise


@cache
def _close_clients_at_exit() -> None:
    """See to it that connections of zarr are closed when Python ends, rather than complained of."""
    atexit.register(close_clients)


def close_clients() -> None:
    """Close the connections to object stores; the next access reads the environment again."""
    from zarr.core.sync import _get_loop

    filesystem = fsspec.get_filesystem_class("s3")
    for each in list(filesystem._cache.values()):
        client, each._s3 = each._s3, None
        if client is not None:
            loop = _get_loop() if each.asynchronous else each.loop
            closing = client.__aexit__(None, None, None)
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(closing, loop).result(timeout=5)
    filesystem.clear_instance_cache()
