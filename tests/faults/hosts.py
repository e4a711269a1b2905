"""Hosts on one machine: network namespaces with an address each, joined by a bridge. Needs root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def can_make_hosts() -> bool:
    """Return whether this process may make namespaces."""
    return os.geteuid() == 0 and Path("/usr/sbin/ip").exists()


@dataclass(frozen=True)
class Host:
    """A namespace whose cable to the bridge can be pulled."""

    name: str
    address: str
    cable: str

    @property
    def prefix(self) -> list[str]:
        """Return what a command begins with to run there."""
        return ["ip", "netns", "exec", self.name]

    def cut_off(self) -> None:
        _ip("link", "set", self.cable, "down")

    def connect(self) -> None:
        _ip("link", "set", self.cable, "up")

    def has(self, pid: int) -> bool:
        """Return whether a process runs there."""
        told = subprocess.run(
            ["ip", "netns", "identify", str(pid)], capture_output=True, text=True, check=False
        )
        return told.stdout.strip() == self.name


@contextmanager
def hosts(*names: str) -> Iterator[list[Host]]:
    """Provide hosts that reach each other and this process, which has the bridge's address."""
    mark, net = f"f{os.getpid() % 10_000}", f"10.231.{os.getpid() % 250}"
    bridge = f"{mark}br"
    made = []
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number, name in enumerate(names, start=1):
            host = Host(f"{mark}{name}", f"{net}.{number}", f"{mark}v{number}")
            _ip("netns", "add", host.name)
            made.append(host)
            _ip("link", "add", host.cable, "type", "veth", "peer", "name", f"{mark}p{number}")
            _ip("link", "set", f"{mark}p{number}", "netns", host.name)
            _ip("link", "set", host.cable, "master", bridge, "up")
            inside = ("-n", host.name)
            _ip(*inside, "address", "add", f"{host.address}/24", "dev", f"{mark}p{number}")
            _ip(*inside, "link", "set", f"{mark}p{number}", "up")
            _ip(*inside, "link", "set", "lo", "up")
        yield made
    finally:
        for host in made:
            _ip("netns", "delete", host.name)
        _ip("link", "delete", bridge)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
