"""A network between a client and a server on loopback that can be cut, slow or gone."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PIECE = 2**14


@dataclass
class Network:
    """Passes bytes on to a server; what it does to them may be changed at any time.

    `cut_after` is how many more bytes clients may send before every connection is cut, once or, if
    it `cuts_again`, each time. `delay` is waited for each piece. While it `is_gone`, new
    connections are closed at once.
    """

    target: int
    port: int = 0
    cut_after: int | None = None
    cuts_again: bool = False
    delay: float = 0.0
    is_gone: bool = False
    n_cuts: int = 0
    n_passed: int = 0
    _since_cut: int = 0
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Cut every connection now."""
        with self._lock:
            self.n_cuts += 1
            for each in self._open:
                _shut(each)
            self._open.clear()

    def serve(self, client: socket.socket) -> None:
        if self.is_gone:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        for source, sink, counts in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._pass, args=(source, sink, counts), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        try:
            while piece := source.recv(PIECE):
                if self.delay:
                    time.sleep(self.delay)
                if counts and self._is_due(len(piece)):
                    sink.sendall(piece[: len(piece) // 2])
                    self.cut()
                    return
                sink.sendall(piece)
        except OSError:
            pass  # the other side of this connection was cut
        finally:
            _shut(source)
            _shut(sink)
            with self._lock:
                self._open -= {source, sink}

    def _is_due(self, n_bytes: int) -> bool:
        with self._lock:
            self.n_passed += n_bytes
            if self.cut_after is None:
                self._since_cut = 0
                return False
            self._since_cut += n_bytes
            if self._since_cut <= self.cut_after:
                return False
            self._since_cut = 0
            if not self.cuts_again:
                self.cut_after = None
            return True


@contextmanager
def interrupted_network(target: int) -> Iterator[Network]:
    """Provide a network before a server's port while the block runs."""
    network = Network(target)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        network.port = listening.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                network.serve(client)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield network
        finally:
            # Closing alone does not wake the thread that waits for connections.
            listening.shutdown(socket.SHUT_RDWR)
            network.cut()


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
