"""Bring the official files of a benchmark into the store.

    raw/<folder>/<path>             the files, as the released code names them
    raw/lock/<folder>/<path>.json   sha256, size and address of each, written last
    raw/incoming/                   what is on its way; a killed download continues there

A file counts once its lock is there. The lock outlives the file: a file fetched again must have
the sha256 of the first time, unless someone removes the lock.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import fsspec
from filelock import FileLock

from storage.errors import DownloadFailed, PublishedFileInvalid, translated
from storage.location import Location, require_space, whole_or_nothing
from storage.official.catalogue import Archive, PublishedBenchmark, PublishedFile
from storage.official.files import Kind, open_array
from storage.official.transfer import Patience, Unavailable, forget_transfer, sha256_of, transfer

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
    patience: Patience | None = None,
) -> list[Location]:
    """Bring all files of a benchmark into the store, one by one, and return where they are.

    `mirrors` are folders or URLs to look in first, in this order, under the names of the released
    code or of the published archives. Files that are there already are not asked for again. If
    some cannot be had, the others are still brought before DownloadFailed says why.
    """
    prefixes = tuple(Location.parse(mirror).url for mirror in mirrors)
    wanted = [file for file in benchmark.files if not _is_present(benchmark, file, root, report)]
    if wanted:
        with _incoming_folder(benchmark, root) as folder:
            require_space(folder, sum(file.n_bytes or 0 for file in wanted), benchmark.title)
            courier = _Courier(benchmark, root, prefixes, report, patience or Patience(), folder)
            failures = [failure for file in wanted if (failure := courier.bring(file))]
            if failures:
                raise DownloadFailed("\n".join(failures))
            shutil.rmtree(folder)
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
def _incoming_folder(benchmark: PublishedBenchmark, root: Location) -> Iterator[Path]:
    """Yield a folder of this machine for files on their way, to one process at a time.

    Beside the store it outlives the process, so that a download continues; for a store elsewhere
    it is temporary.
    """
    if root.local_path is None:
        with tempfile.TemporaryDirectory(prefix="lsm-download-") as temporary:
            folder = Path(temporary) / "incoming"
            folder.mkdir()
            yield folder
        return
    name = benchmark.folder.replace("/", "-")
    folder = root.local_path / "raw" / "incoming" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(root.local_path / "raw" / f"{name}.lock"):
        folder.mkdir(exist_ok=True)
        yield folder


@dataclass(frozen=True)
class _Courier:
    """Brings files of a benchmark by way of a folder of this machine."""

    benchmark: PublishedBenchmark
    root: Location
    prefixes: tuple[str, ...]
    report: Report
    patience: Patience
    folder: Path

    def bring(self, file: PublishedFile) -> str | None:
        """Bring one file from the first address that gives it; return why, if none does."""
        # Another process may have brought it while this one waited.
        if _is_present(self.benchmark, file, self.root, self.report):
            return None
        reasons = []
        for url, archive in self._addresses(file):
            try:
                self._accept(file, self._fetch(file, url, archive), url)
                return None
            except (Unavailable, PublishedFileInvalid) as error:
                reasons.append(f"{url}: {error}")
        return (
            f"{self.benchmark.folder}/{file.path} could not be had. {'; '.join(reasons)}. "
            "If you have the file, name its folder or another address in LSM_MIRRORS, or with "
            "`lsm prepare --from`"
        )

    def _addresses(self, file: PublishedFile) -> Iterator[tuple[str, Archive | None]]:
        """Yield where to look: what someone put in place by hand, the user's mirrors, the rest."""
        own = raw_location(self.benchmark, file, self.root)
        if own.exists():
            yield own.url, None
        for prefix in self.prefixes:
            yield f"{prefix}/{self.benchmark.folder}/{file.path}", None
            yield f"{prefix}/{file.path}", None
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
            return self._transfer(url, file.name)
        packed = self._transfer(url, archive.name)
        unpacked = self.folder / f"{file.name}.unpacked"
        try:
            if archive.sha256 is not None:
                _require_hash(packed, archive.sha256, "the published one")
            extract_member(packed, file.name, unpacked)
        except PublishedFileInvalid:
            forget_transfer(packed)
            raise
        return unpacked

    def _transfer(self, url: str, name: str) -> Path:
        target = self.folder / f"{name}.{hashlib.sha256(url.encode()).hexdigest()[:12]}.part"
        transfer(
            url,
            target,
            kinds=KINDS[Path(name).suffix],
            patience=self.patience,
            advance=lambda done, total: self.report(name, done, max(done, total), ""),
        )
        return target

    def _accept(self, file: PublishedFile, local: Path, url: str) -> None:
        """Check a file, put it in its place and lock its sha256; remove it if it is wrong."""
        lock = _lock(self.benchmark, file, self.root)
        record = read_record(self.benchmark, file, self.root)
        try:
            if file.sha256 is not None:
                _require_hash(local, file.sha256, "the published one")
            elif record is not None:
                whose = f"that of the first download, locked in {lock}"
                _require_hash(local, record.sha256, whose)
            else:
                self._require_contents(file, local)
        except PublishedFileInvalid:
            forget_transfer(local)
            raise
        found = FileRecord(sha256_of(local), local.stat().st_size, url)
        _publish(local, raw_location(self.benchmark, file, self.root))
        lock.write_bytes(json.dumps(asdict(found), indent=1).encode())
        self.report(file.name, found.n_bytes, found.n_bytes, "complete")

    def _require_contents(self, file: PublishedFile, local: Path) -> None:
        """Raise PublishedFileInvalid unless the arrays are there, before the lock is closed."""
        for variable in self.benchmark.variables:
            array = variable.array
            if file.path in array.files:
                open_array(local, array.variable, self.benchmark.shape(array, file.path))


def _require_hash(local: Path, expected: str, whose: str) -> None:
    sha256 = sha256_of(local)
    if sha256 != expected:
        raise PublishedFileInvalid(
            f"the file has sha256 {sha256}, expected {expected} ({whose}); it was not kept"
        )


def extract_member(archive: Path, name: str, target: Path) -> None:
    """Write the one file of an archive whose name without folders is `name`, whole or not at all.

    Names in the archive only choose the member; no path is ever built from them.
    """
    # RuntimeError: the archive asks for a password.
    damage = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

    def damaged(error: Exception) -> PublishedFileInvalid:
        return PublishedFileInvalid(
            f"{archive} does not give {name}: {error}; expected a whole zip archive, fetch it again"
        )

    with translated(*damage, into=damaged), zipfile.ZipFile(archive) as opened:
        files = [each for each in opened.infolist() if not each.is_dir()]
        found = [each for each in files if PurePosixPath(each.filename).name == name]
        if len(found) != 1:
            names = ", ".join(each.filename for each in files[:10])
            raise PublishedFileInvalid(
                f"{archive} holds {len(found)} files named {name}, expected one; it holds {names}"
            )
        require_space(target.parent, found[0].file_size, f"unpacking {found[0].filename}")
        with (
            whole_or_nothing(target) as partial,
            opened.open(found[0]) as source,
            partial.open("wb") as file,
        ):
            shutil.copyfileobj(source, file, 2**20)


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
