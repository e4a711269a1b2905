"""Hosts in namespaces: they reach each other until a cable is pulled."""

import subprocess

import pytest

from tests.faults.hosts import Host, can_make_hosts, hosts
from tests.storage.tracking.test_outage import wait_until

pytestmark = pytest.mark.skipif(not can_make_hosts(), reason="this did not run: it needs root")


def reaches(one: Host, other: Host) -> bool:
    script = f"import socket; socket.create_connection(('{other.address}', 80), 2)"
    command = [*one.prefix, "python3", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Nothing listens there: a host that is reached says so at once.
    return "ConnectionRefusedError" in done.stderr


def test_a_host_is_cut_off_and_connected_again() -> None:
    with hosts("a", "b") as (one, other):
        assert reaches(one, other)
        other.cut_off()
        assert not reaches(one, other)
        other.connect()
        assert reaches(one, other)
        sleeper = subprocess.Popen([*one.prefix, "sleep", "60"])
        try:
            wait_until(lambda: one.has(sleeper.pid))
            assert not other.has(sleeper.pid)
        finally:
            sleeper.kill()
            sleeper.wait()
