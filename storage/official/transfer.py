"""Bring one file from an address to this machine, continuing where an earlier attempt ended."""

import hashlib
import http.client
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

import fsspec

from storage.errors import translated
from storage.location import require_space
from storage.official.files import Kind, kind_of

Advance: TypeAlias = Callable[[int, int], None]
"""Takes the bytes that are here and the bytes of the whole, 0 if not known."""

PIECE = 2**20
PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals that another try may mend, as all errors of the server's own."""


class Unavailable(Exception):
    """An address does not give the file, and asking again would not help."""


class _Interrupted(Exception):
    """An attempt failed in a way that may pass."""


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
    url: str, target: Path, *, kinds: Collection[Kind], patience: Patience, advance: Advance
) -> None:
    """Bring the whole content of an address into `target`.

    What `target` holds already is kept if it is the start of the same content: it may be a part
    that a killed process left behind. Content of another kind, such as a page that says why the
    file is not given today, never reaches `target`. A note lies beside `target` until
    `forget_transfer`, so that a whole file which was not used yet is not fetched again.
    """
    furthest, n_failures = 0, 0
    while True:
        try:
            _attempt(url, target, kinds, patience.timeout, advance)
            return
        except _Interrupted as error:
            size = target.stat().st_size if target.exists() else 0
            n_failures = 0 if size > furthest else n_failures + 1
            furthest = max(furthest, size)
            if n_failures >= patience.attempts:
                raise Unavailable(f"{error} ({n_failures} attempts)") from error
        time.sleep(patience.wait(n_failures))


def forget_transfer(target: Path) -> None:
    """Remove what is left of a transfer."""
    _note_path(target).unlink(missing_ok=True)
    target.unlink(missing_ok=True)


def _note_path(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def _read_note(target: Path, url: str) -> dict[str, Any] | None:
    """Return `validator` and `total` of the content of an address, or None without any of it."""
    try:
        note = dict(json.loads(_note_path(target).read_bytes()))
    except (FileNotFoundError, ValueError):
        return None
    return note if note.get("url") == url and target.exists() else None


@dataclass
class _Opened:
    """A content being read: from which byte on, of how many."""

    stream: IO[bytes]
    start: int
    total: int | None
    validator: str | None = None


def _attempt(
    url: str, target: Path, kinds: Collection[Kind], timeout: float, advance: Advance
) -> None:
    note = _read_note(target, url)
    done = target.stat().st_size if note else 0
    if note is not None and note["total"] == done:
        return
    if url.startswith(("http://", "https://")):
        opened = _open_http(url, done, note["validator"] if note else None, timeout)
    else:
        opened = _open_filesystem(url)
    with closing(opened.stream):
        pieces = _pieces(opened)
        if opened.start == 0:
            begin = _require_kind(next(pieces, b""), kinds)
            forget_transfer(target)
            target.write_bytes(b"")
            begun = {"url": url, "validator": opened.validator, "total": opened.total}
            _note_path(target).write_text(json.dumps(begun))
            pieces, done = chain([begin], pieces), 0
        elif note is None or (opened.start, opened.total) != (done, note["total"]):
            forget_transfer(target)
            raise _Interrupted("the content changed between two attempts")
        total = opened.total or 0
        require_space(target.parent, total - done, f"downloading {target.name}")
        with target.open("ab") as file:
            for piece in pieces:
                file.write(piece)
                done += len(piece)
                advance(done, total)
    if opened.total is not None and done != opened.total:
        raise _Interrupted(f"the connection ended at {done} of {opened.total} bytes")


def _pieces(opened: _Opened) -> Iterator[bytes]:
    done = opened.start

    def broken(error: Exception) -> _Interrupted:
        return _Interrupted(f"the connection broke at {done} bytes: {error!r}")

    with translated(OSError, http.client.HTTPException, into=broken):
        while piece := opened.stream.read(PIECE):
            done += len(piece)
            yield piece


def _require_kind(begin: bytes, kinds: Collection[Kind]) -> bytes:
    """Return the first bytes, if they show that this is data of the right kind."""
    if kind_of(begin) in kinds:
        return begin
    page = begin[:4096].decode("utf-8", "replace")
    title = re.search(r"<title[^>]*>(.*?)</title>", page, re.DOTALL | re.IGNORECASE)
    shown = " ".join((title[1] if title else page[:80]).split())
    raise _Interrupted(f"a page was sent instead of data: {shown!r}")


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
        error.close()
        if offset and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open_http(url, 0, None, timeout)
        if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            raise Unavailable("not there") from error
        is_final = error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in PASSING
        refusal = Unavailable if is_final else _Interrupted
        raise refusal(f"the server answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, socket.gaierror | ConnectionRefusedError):
            raise Unavailable(f"no connection: {reason}") from error
        raise _Interrupted(f"no connection: {reason}") from error
    etag = response.headers.get("ETag", "")
    # A weak tag may stay the same while bytes change.
    tag = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
    length = response.headers.get("Content-Length", "")
    start, total = 0, int(length) if length.isdecimal() else None
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if found is None:
            response.close()
            raise _Interrupted("the server sent a part and does not say which")
        start, total = int(found[1]), int(found[2])
    return _Opened(response, start, total, tag)


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follow redirections, but never from https to http, where anyone could change the bytes."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request for the new address."""
        if req.type == "https" and not newurl.startswith("https://"):
            raise Unavailable(f"redirected from https to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open_filesystem(url: str) -> _Opened:
    """Open a file of this machine, an object store or another filesystem that fsspec knows."""
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        filesystem.invalidate_cache()
        return _Opened(filesystem.open(path, "rb"), 0, filesystem.size(path))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise Unavailable("not there") from error
    except (PermissionError, ImportError) as error:
        raise Unavailable(str(error)) from error
    except OSError as error:
        raise _Interrupted(str(error)) from error


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
