"""Bring one file from an address to this machine, continuing where an earlier attempt ended."""

import hashlib
import http.client
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import fsspec

from storage.disk_space import require_space
from storage.published_files import HEAD_BYTES, Kind, kind_of

Advance: TypeAlias = Callable[[int, int], None]
"""Takes the bytes that are here and the bytes of the whole, 0 if not known."""

PIECE = 2**20
FINAL_STATUS = (400, 401, 402, 403, 405, 406, 451)
MISSING_STATUS = (404, 410)
RANGE_REFUSED = 416
PARTIAL_CONTENT = 206


class Unavailable(Exception):
    """An address does not give the file, and asking again would not help."""


class Missing(Unavailable):
    """There is no such file at an address."""


class Stopped(Exception):
    """The transfer was asked to end early."""


class _Interrupted(Exception):
    """An attempt failed in a way that may pass."""

    def __init__(self, reason: str, wait: float = 0.0, *, anew: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.anew = anew


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often to try again, and how long to wait before: twice as long each time, in seconds.

    Attempts that bring the file further are not counted.
    """

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    timeout: float = 60.0

    def wait(self, n_failures: int) -> float:
        """Return how long to wait after some failures in a row."""
        return float(min(self.longest_wait, self.first_wait * 2**n_failures))


def transfer(
    url: str,
    target: Path,
    *,
    kinds: Collection[Kind],
    patience: Patience,
    advance: Advance,
    stop: threading.Event,
) -> None:
    """Bring the whole content of an address into `target`.

    What `target` holds already is kept if it is the start of the same content: it may be a part
    that a killed process left behind. Content of another kind, such as a page that says why the
    file is not given today, never reaches `target`. A note lies beside `target` until
    `forget_transfer`, so that a whole file which was not used yet is not fetched again.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target, url)
    furthest, n_failures = part.size, 0
    while True:
        try:
            _attempt(part, kinds, patience.timeout, advance, stop)
            return
        except _Interrupted as error:
            if error.anew:
                part.forget()
            progressed = part.size > furthest
            furthest = max(furthest, part.size)
            n_failures = 0 if progressed else n_failures + 1
            if n_failures >= patience.attempts:
                raise Unavailable(f"{error} ({n_failures} attempts)") from error
            wait = min(patience.longest_wait, max(error.wait, patience.wait(n_failures)))
        if stop.wait(wait):
            raise Stopped


def forget_transfer(target: Path) -> None:
    """Remove what is left of a transfer."""
    target.unlink(missing_ok=True)
    _note_path(target).unlink(missing_ok=True)


def _note_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


class _Part:
    """What has arrived so far, and a note beside it of the content it is the start of."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.url = url
        self._note = _note_path(path)

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.note else 0

    @property
    def note(self) -> dict[str, Any] | None:
        """Return `validator` and `total` of the content, or None if nothing of it is here."""
        try:
            note = dict(json.loads(self._note.read_bytes()))
        except (FileNotFoundError, ValueError):
            return None
        return note if note.get("url") == self.url and self.path.exists() else None

    def begin(self, validator: str | None, total: int | None) -> None:
        self.forget()
        self.path.write_bytes(b"")
        note = {"url": self.url, "validator": validator, "total": total}
        self._note.write_text(json.dumps(note))

    def forget(self) -> None:
        self._note.unlink(missing_ok=True)


@dataclass
class _Opened:
    """A content being read: from which byte on, of how many."""

    stream: IO[bytes]
    start: int
    total: int | None
    validator: str | None


def _attempt(
    part: _Part, kinds: Collection[Kind], timeout: float, advance: Advance, stop: threading.Event
) -> None:
    note, size = part.note, part.size
    if note is not None and note["total"] == size:
        return
    opened = _open(part.url, size, note["validator"] if note else None, timeout)
    with closing(opened.stream):
        if opened.start == 0:
            head = _head(opened.stream, kinds)
            part.begin(opened.validator, opened.total)
        elif note is not None and opened.start == size and opened.total == note["total"]:
            head = b""
        else:
            raise _Interrupted("the content changed between two attempts", anew=True)
        _append(part, head, opened, advance, stop)
    if opened.total is not None and part.size != opened.total:
        raise _Interrupted(f"the connection ended at {part.size} of {opened.total} bytes")


def _append(
    part: _Part, head: bytes, opened: _Opened, advance: Advance, stop: threading.Event
) -> None:
    total, done = opened.total or 0, opened.start
    require_space(part.path.parent, total - done, f"downloading {part.path.name}")
    with part.path.open("ab") as file:
        piece = head
        while True:
            file.write(piece)
            done += len(piece)
            advance(done, total)
            if stop.is_set():
                raise Stopped
            try:
                piece = opened.stream.read(PIECE)
            except (OSError, http.client.HTTPException) as error:
                raise _Interrupted(f"the connection broke at {done} bytes: {error!r}") from error
            if not piece:
                return


def _head(stream: IO[bytes], kinds: Collection[Kind]) -> bytes:
    """Return the first bytes, once they show that this is data of the right kind."""
    try:
        head = stream.read(HEAD_BYTES)
        while len(head) < HEAD_BYTES and (more := stream.read(HEAD_BYTES - len(head))):
            head += more
        if kind_of(head) in kinds:
            return head
        page = (head + stream.read(4096)).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(f"the connection broke at its start: {error!r}") from error
    title = re.search(r"<title[^>]*>(.*?)</title>", page, re.DOTALL | re.IGNORECASE)
    shown = " ".join((title[1] if title else page[:80]).split())
    raise _Interrupted(f"a page was sent instead of data: {shown!r}")


def _open(url: str, offset: int, validator: str | None, timeout: float) -> _Opened:
    if url.startswith(("http://", "https://")):
        return _open_http(url, offset, validator, timeout)
    return _open_filesystem(url, offset)


def _open_http(url: str, offset: int, validator: str | None, timeout: float) -> _Opened:
    headers = {"User-Agent": "lsm", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if validator:
            # Without it a file that changed meanwhile would be continued with other bytes.
            headers["If-Range"] = validator
    opener = urllib.request.build_opener(_NoDowngrade)
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == RANGE_REFUSED:
                raise _Interrupted("the server has other bytes now", anew=True) from error
            raise _refusal(error) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.gaierror | ConnectionRefusedError):
            raise Unavailable(f"no connection: {reason}") from error
        raise _Interrupted(f"no connection: {reason}") from error
    etag = response.headers.get("ETag", "")
    # A weak tag may stay the same while bytes change.
    tag = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
    start, total = 0, _whole_number(response.headers.get("Content-Length"))
    if response.status == PARTIAL_CONTENT:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if found is None:
            response.close()
            raise _Interrupted("the server sent a part and does not say which")
        start, total = int(found[1]), int(found[2])
    return _Opened(response, start, total, tag)


def _refusal(error: urllib.error.HTTPError) -> Exception:
    said = f"the server answered {error.code} {error.reason}"
    if error.code in MISSING_STATUS:
        return Missing(said)
    if error.code in FINAL_STATUS:
        return Unavailable(said)
    return _Interrupted(said, float(_whole_number(error.headers.get("Retry-After")) or 0))


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follow redirections, but never from https to http, where anyone could change the bytes."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new address."""
        if req.type == "https" and not newurl.startswith("https://"):
            raise Unavailable(f"redirected from https to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open_filesystem(url: str, offset: int) -> _Opened:
    """Open a file of this machine, an object store or another filesystem that fsspec knows."""
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        filesystem.invalidate_cache()
        found = filesystem.info(path)
        if found["type"] != "file":
            raise Missing("there is a folder of this name")
        stream = filesystem.open(path, "rb")
        stream.seek(min(offset, found["size"]))
    except FileNotFoundError as error:
        raise Missing("there is no such file") from error
    except (PermissionError, ImportError) as error:
        raise Unavailable(str(error)) from error
    except OSError as error:
        raise _Interrupted(str(error)) from error
    return _Opened(stream, min(offset, found["size"]), found["size"], None)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
