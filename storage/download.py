"""Bring the official files of a benchmark into the store.

    raw/<folder>/<path>             the files, as the released code names them
    raw/lock/<folder>/<path>.json   sha256, size and address of each, written last
    raw/quarantine/                 what came with a wrong sha256
    raw/incoming/                   what is on its way; a killed download continues there

A file counts once its lock is there. The lock outlives the file: a file fetched again must have
the sha256 of the first time, unless someone removes the lock.
"""

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import fsspec

from storage.archives import extract_member
from storage.disk_space import require_space
from storage.errors import DownloadFailed, PublishedFileInvalid
from storage.location import Location
from storage.published_benchmark import Archive, PublishedBenchmark, PublishedFile
from storage.published_files import Kind, open_array
from storage.transfer import (
    Missing,
    Patience,
    Unavailable,
    forget_transfer,
    sha256_of,
    transfer,
)

Report: TypeAlias = Callable[[str, int, int, str], None]
"""Takes the name of a piece of work, how much is done of how much, and a note."""

KINDS: dict[str, tuple[Kind, ...]] = {
    ".npy": ("npy",),
    ".mat": ("mat", "mat 7.3"),
    ".zip": ("zip",),
}


def no_report(name: str, done: int, total: int, note: str) -> None:
    """Take in progress and do nothing with it."""


@dataclass(frozen=True)
class FileRecord:
    """What the lock says of a file."""

    sha256: str
    n_bytes: int
    url: str


def download_published(
    benchmark: PublishedBenchmark,
    root: Location,
    mirrors: Sequence[str] = (),
    report: Report = no_report,
    *,
    at_once: int = 3,
    patience: Patience | None = None,
) -> list[Location]:
    """Bring all files of a benchmark into the store and return where they are.

    `mirrors` are folders or URLs to look in first, under the names of the released code or of
    the published archives. Files that are there already are not asked for again. If some cannot
    be had, the others are still brought before DownloadFailed says why.
    """
    prefixes = tuple(Location.parse(mirror).url for mirror in mirrors)
    wanted = [file for file in benchmark.files if not _is_present(benchmark, file, root, report)]
    if wanted:
        with _incoming_folder(root) as folder:
            require_space(folder, sum(file.n_bytes or 0 for file in wanted), benchmark.title)
            courier = _Courier(benchmark, root, prefixes, report, patience or Patience(), folder)
            _bring_all(courier, wanted, at_once)
    return [raw_location(benchmark, file, root) for file in benchmark.files]


def raw_location(benchmark: PublishedBenchmark, file: PublishedFile, root: Location) -> Location:
    """Return where a file lies in the store."""
    return root / "raw" / benchmark.folder / file.path


def read_record(
    benchmark: PublishedBenchmark, file: PublishedFile, root: Location
) -> FileRecord | None:
    """Return what the lock says of a file, or None if it was never fetched."""
    lock = _lock(benchmark, file, root)
    try:
        return FileRecord(**json.loads(lock.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, RecursionError) as error:
        raise DownloadFailed(f"{lock} cannot be read: {error}; remove it") from error


def _lock(benchmark: PublishedBenchmark, file: PublishedFile, root: Location) -> Location:
    return root / "raw" / "lock" / benchmark.folder / f"{file.path}.json"


def _is_present(
    benchmark: PublishedBenchmark, file: PublishedFile, root: Location, report: Report
) -> bool:
    record = read_record(benchmark, file, root)
    if record is None:
        return False
    filesystem, path = fsspec.core.url_to_fs(raw_location(benchmark, file, root).url)
    if not filesystem.exists(path) or filesystem.size(path) != record.n_bytes:
        return False
    report(file.name, record.n_bytes, record.n_bytes, "there already")
    return True


@contextmanager
def _incoming_folder(root: Location) -> Iterator[Path]:
    """Yield a folder of this machine for files on their way.

    Beside the store it outlives the process, so that a download continues; for a store elsewhere
    it is temporary.
    """
    if root.local_path is not None:
        folder = root.local_path / "raw" / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="lsm-download-") as temporary:
            yield Path(temporary)


def _bring_all(courier: "_Courier", wanted: list[PublishedFile], at_once: int) -> None:
    with ThreadPoolExecutor(at_once, thread_name_prefix="download") as pool:
        futures = [pool.submit(courier.bring, file) for file in wanted]
        try:
            failures = [str(error) for future in futures if (error := _failure(future))]
        except BaseException:
            # Someone pressed Ctrl-C, or something is wrong with this program: end the threads.
            courier.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise DownloadFailed("\n".join(failures))
    courier.clear()


def _failure(future: Future[None]) -> DownloadFailed | None:
    error = future.exception()
    if error is None or isinstance(error, DownloadFailed):
        return error
    raise error


@dataclass
class _Courier:
    """Brings files; `bring` may be called by many threads at once."""

    benchmark: PublishedBenchmark
    root: Location
    prefixes: tuple[str, ...]
    report: Report
    patience: Patience
    folder: Path
    stop: threading.Event = field(default_factory=threading.Event)
    _reporting: threading.Lock = field(default_factory=threading.Lock)

    def bring(self, file: PublishedFile) -> None:
        """Bring one file from the first address that gives it."""
        reasons = []
        with alone(self.folder / f"{self._flat_name(file)}.alone"):
            # Another process may have brought it while this one waited.
            if _is_present(self.benchmark, file, self.root, self._tell):
                return
            for url, archive in self._addresses(file):
                try:
                    self._accept(file, self._fetch(file, url, archive), url)
                    return
                except Missing:
                    reasons.append(f"{url}: not there")
                except (Unavailable, PublishedFileInvalid) as error:
                    reasons.append(f"{url}: {error}")
        raise DownloadFailed(
            f"{self.benchmark.folder}/{file.path} could not be had. {'; '.join(reasons)}. "
            "If you have the file, name its folder or another address in LSM_MIRRORS, or with "
            "`lsm prepare --from`"
        )

    def clear(self) -> None:
        """Remove the archives, once all wanted files have been taken out."""
        for archive in {file.archive.name for file in self.benchmark.files if file.archive}:
            _remove(self.folder, f"{archive}.")

    def _addresses(self, file: PublishedFile) -> Iterator[tuple[str, Archive | None]]:
        """Yield where to look: what someone put in place by hand, the user's mirrors, the rest."""
        own = raw_location(self.benchmark, file, self.root)
        if own.exists():
            yield own.url, None
        whole_path = f"{self.benchmark.folder}/{file.path}"
        parts = whole_path.split("/")
        for prefix in self.prefixes:
            for first in range(len(parts)):
                yield f"{prefix}/{'/'.join(parts[first:])}", None
            if file.archive is not None:
                yield f"{prefix}/{file.archive.name}", file.archive
        for url in file.urls:
            yield url, None
        if file.archive is not None:
            for url in file.archive.urls:
                yield url, file.archive

    def _fetch(self, file: PublishedFile, url: str, archive: Archive | None) -> Path:
        """Return a copy of the file on this machine."""
        if archive is None:
            local = self.folder / f"{self._flat_name(file)}.{_short(url)}.part"
            self._transfer(url, local, file.name)
            return local
        with alone(self.folder / f"{archive.name}.alone"):
            packed = self.folder / f"{archive.name}.{_short(url)}.part"
            self._transfer(url, packed, archive.name)
            if archive.sha256 is not None:
                self._require_hash(packed, archive.name, archive.sha256, "the published one")
            unpacked = self.folder / f"{self._flat_name(file)}.unpacked"
            try:
                extract_member(packed, file.name, unpacked)
            except PublishedFileInvalid:
                forget_transfer(packed)
                raise
        return unpacked

    def _transfer(self, url: str, target: Path, name: str) -> None:
        transfer(
            url,
            target,
            kinds=KINDS[Path(name).suffix],
            patience=self.patience,
            advance=lambda done, total: self._tell(name, done, max(done, total), ""),
            stop=self.stop,
        )

    def _accept(self, file: PublishedFile, local: Path, url: str) -> None:
        """Check a file, put it in its place and lock its sha256."""
        record = read_record(self.benchmark, file, self.root)
        if file.sha256 is not None:
            sha256 = self._require_hash(local, file.name, file.sha256, "the published one")
        elif record is not None:
            whose = (
                f"that of the first download, locked in {_lock(self.benchmark, file, self.root)}"
            )
            sha256 = self._require_hash(local, file.name, record.sha256, whose)
        else:
            self._require_contents(file, local)
            sha256 = sha256_of(local)
        found = FileRecord(sha256, local.stat().st_size, url)
        _publish(local, raw_location(self.benchmark, file, self.root))
        content = json.dumps(asdict(found), indent=1).encode()
        _lock(self.benchmark, file, self.root).write_bytes(content)
        _remove(self.folder, f"{self._flat_name(file)}.")
        self._tell(file.name, found.n_bytes, found.n_bytes, "complete")

    def _require_hash(self, local: Path, name: str, expected: str, whose: str) -> str:
        """Return the sha256 of a file; set the file aside if it is not the expected one."""
        sha256 = sha256_of(local)
        if sha256 != expected:
            aside = self.root / "raw" / "quarantine" / f"{name}.{sha256[:12]}"
            _publish(local, aside)
            forget_transfer(local)
            raise PublishedFileInvalid(
                f"the file has sha256 {sha256}, expected {expected} ({whose}); it was set aside "
                f"as {aside}"
            )
        return sha256

    def _require_contents(self, file: PublishedFile, local: Path) -> None:
        """Raise PublishedFileInvalid unless the arrays are there, before the lock is closed."""
        arrays = [variable.array for variable in self.benchmark.variables]
        try:
            for array in arrays:
                if file.path in array.files:
                    shape = self.benchmark.shape(array, file.path)
                    open_array(local, array.variable, shape)
        except PublishedFileInvalid:
            forget_transfer(local)
            raise

    def _flat_name(self, file: PublishedFile) -> str:
        return f"{self.benchmark.folder}/{file.path}".replace("/", "-")

    def _tell(self, name: str, done: int, total: int, note: str) -> None:
        with self._reporting:
            self.report(name, done, total, note)


def _publish(local: Path, location: Location) -> None:
    """Move a file of this machine into the store, in one step for every reader."""
    if location.local_path is not None:
        location.local_path.parent.mkdir(parents=True, exist_ok=True)
        with local.open("rb") as file:
            os.fsync(file.fileno())
        local.replace(location.local_path)
    else:
        filesystem, path = fsspec.core.url_to_fs(location.url)
        filesystem.put_file(str(local), path)


def _remove(folder: Path, start: str) -> None:
    for path in folder.iterdir():
        if path.name.startswith(start):
            path.unlink(missing_ok=True)


def _short(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:12]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other thread or process holds this lock, which a killed one gives back."""
    try:
        import fcntl
    except ImportError:
        # Windows: two processes should not download into one store at once.
        yield
        return
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
