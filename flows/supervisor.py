"""Brings back what has died of the local stack; `lsm stack up` starts it, `down` ends it first.

A service that dies again at once is tried after longer and longer pauses: it may wait for somebody
who frees a disk or a port.
"""

import signal
import threading
import time
from dataclasses import dataclass

from flows.errors import ServiceFailed
from flows.services import stop_process
from flows.settings import Settings
from flows.stack import SUPERVISOR, Service, keep_services, services

PAUSE = 1.0
LONGEST_PAUSE = 60.0


@dataclass
class Restarts:
    """When a service may be started again, and how long it has to wait if that fails, too."""

    at: float = 0.0
    pause: float = PAUSE

    def are_due(self, now: float) -> bool:
        """Return whether it may be started now, and if so, let the next time come later."""
        if now < self.at:
            return False
        has_lived = now > self.at + 2 * LONGEST_PAUSE
        self.pause = PAUSE if has_lived else min(2 * self.pause, LONGEST_PAUSE)
        self.at = now + self.pause
        return True


def supervise(settings: Settings, is_over: threading.Event) -> None:
    """Start services that have died again, until told to end."""
    restarts: dict[str, Restarts] = {}
    told = ""
    while not is_over.wait(PAUSE):
        try:
            _look_once(settings, restarts)
            told = ""
        except (OSError, ServiceFailed) as error:
            # A full disk, or a file that somebody damaged: it may be mended.
            if str(error) != told:
                print(f"cannot look after the services: {error}", flush=True)
            told = str(error)


def _look_once(settings: Settings, restarts: dict[str, Restarts]) -> None:
    """Start again what has died; each is written down as soon as it runs, or ended if it cannot."""
    known = services(settings)
    for index, service in enumerate(known):
        again = _kept_alive(service, restarts.setdefault(service.name, Restarts()))
        if again is service:
            continue
        known[index] = again
        try:
            keep_services(settings, known)
        except OSError:
            process = again.process()
            if process is not None:
                stop_process(process)
            raise


def _kept_alive(service: Service, restarts: Restarts) -> Service:
    """Return the service, started again if it has died and may be."""
    if service.name == SUPERVISOR or service.process() or not restarts.are_due(time.monotonic()):
        return service
    again = service.started_again()
    print(f"{service.name} had ended and was started again as process {again.pid}", flush=True)
    return again


def main() -> None:
    """Supervise until SIGTERM; what is being started then is still written down."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    supervise(Settings.from_environment(), is_over)


if __name__ == "__main__":
    main()
