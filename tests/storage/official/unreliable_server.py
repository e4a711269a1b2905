"""An HTTP server on loopback that serves a folder and fails in the ways that mirrors do."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

Fault = Literal["cut", "page", "ignore range", "ignore range, cut", "busy", "no etag", "gone"]
PAGE = b"<!DOCTYPE html><html><head><title>Quota exceeded</title></head><body>Sorry</body></html>"


@dataclass(frozen=True)
class Request:
    path: str
    first_byte: int | None
    status: int


@dataclass
class Server:
    """A running server: `faults` are used up one a request, by path; then it behaves."""

    folder: Path
    url: str = ""
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, path: str) -> Fault | None:
        with self.lock:
            waiting = self.faults.get(path) or self.faults.get("*") or []
            return waiting.pop(0) if waiting else None

    def asked_for(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]


@contextmanager
def unreliable_server(folder: Path) -> Iterator[Server]:
    server = Server(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            respond(self, server)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        server.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()


def respond(handler: BaseHTTPRequestHandler, server: Server) -> None:
    path = unquote(handler.path.split("?")[0]).lstrip("/")
    fault = server.next_fault(path)
    file = server.folder / path
    if fault == "gone" or not file.is_file():
        return send(handler, server, path, None, 404, b"not found")
    if fault == "busy":
        return send(handler, server, path, None, 503, b"busy")
    if fault == "page":
        return send(handler, server, path, None, 200, PAGE)
    content = file.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    first = first_byte(handler, etag)
    if fault is not None and fault.startswith("ignore range"):
        first = None
    headers = {} if fault == "no etag" else {"ETag": etag}
    status, body = 200, content
    if first is not None and first >= len(content):
        return send(handler, server, path, first, 416, b"")
    if first is not None:
        status, body = 206, content[first:]
        headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
    cut = fault in ("cut", "ignore range, cut")
    return send(handler, server, path, first, status, body, headers, cut=cut)


def first_byte(handler: BaseHTTPRequestHandler, etag: str) -> int | None:
    wanted = handler.headers.get("Range")
    if wanted is None or handler.headers.get("If-Range", etag) != etag:
        return None
    return int(wanted.removeprefix("bytes=").rstrip("-"))


def send(
    handler: BaseHTTPRequestHandler,
    server: Server,
    path: str,
    first: int | None,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
    *,
    cut: bool = False,
) -> None:
    with server.lock:
        server.requests.append(Request(path, first, status))
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2] if cut else body)
    if cut:
        handler.close_connection = True
