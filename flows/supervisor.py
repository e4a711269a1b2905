"""Brings back what of the local stack has died, and servers that have not answered for minutes.

`lsm stack up` starts it, `down` ends it first.

A service that dies again at once is tried after longer and longer pauses: it may wait for somebody
who frees a disk or a port.
"""

import signal
import threading
import time
from dataclasses import dataclass

from flows.errors import ServiceFailed
from flows.pulse import Patience, Pulse
from flows.services import stop_process
from flows.settings import Settings
from flows.stack import SUPERVISOR
from flows.stack_file import Service, keep_services, services
from flows.stack_lock import stack_lock_if_free

PAUSE = 1.0
LONGEST_PAUSE = 60.0
PATIENCE = Patience()


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


def supervise(settings: Settings, is_over: threading.Event, patience: Patience = PATIENCE) -> None:
    """Start services again that have died or answer no more, until told to end."""
    restarts: dict[str, Restarts] = {}
    pulses: dict[str, Pulse] = {}
    told = ""
    while not is_over.wait(min(PAUSE, patience.pause)):
        try:
            _feel_one(settings, pulses, patience)
            _look_once(settings, restarts, pulses)
            told = ""
        except (OSError, ServiceFailed) as error:
            # A full disk, or a file that somebody damaged: it may be mended.
            if str(error) != told:
                print(f"cannot look after the services: {error}", flush=True)
            told = str(error)


def _feel_one(settings: Settings, pulses: dict[str, Pulse], patience: Patience) -> None:
    """Ask the server that was asked longest ago, if it is time; one, or those that died would wait.

    Without the lock, which nobody should miss for so long.
    """
    for service in services(settings):
        known = pulses.get(service.name)
        if service.health and (known is None or _is_another(known.service, service)):
            pulses[service.name] = Pulse(service, patience)
    due = [pulse for pulse in pulses.values() if pulse.is_due() and pulse.service.process()]
    if due:
        min(due, key=lambda pulse: pulse.asked).feel()


def _is_another(one: Service, other: Service) -> bool:
    return (one.pid, one.born) != (other.pid, other.born)


def _look_once(settings: Settings, restarts: dict[str, Restarts], pulses: dict[str, Pulse]) -> None:
    """Start again what has died; each is written down as soon as it runs, or ended if it cannot.

    Nothing is done while somebody starts or stops the stack: it would undo what they write.
    """
    with stack_lock_if_free(settings.state) as is_free:
        if not is_free:
            return
        known = services(settings)
        for index, service in enumerate(known):
            pulse = pulses.get(service.name)
            again = _kept_alive(service, restarts.setdefault(service.name, Restarts()), pulse)
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


def _kept_alive(service: Service, restarts: Restarts, pulse: Pulse | None) -> Service:
    """Return the service, started again if it has died or is lost, and may be."""
    if service.name == SUPERVISOR:
        return service
    process, why = service.process(), "had ended"
    if process is not None:
        silent = None
        if pulse is not None and not _is_another(pulse.service, service):
            silent = pulse.silence()
        if silent is None:
            return service
        why = f"had not answered for {silent:.0f} s"
    if not restarts.are_due(time.monotonic()):
        return service
    if process is not None:
        stop_process(process)
    again = service.started_again()
    print(f"{service.name} {why} and was started again as process {again.pid}", flush=True)
    return again


def main() -> None:
    """Supervise until SIGTERM; what is being started then is still written down."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    supervise(Settings.from_environment(), is_over)


if __name__ == "__main__":
    main()
