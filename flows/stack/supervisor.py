"""Restarts services of the local stack that have died, and servers that hang.

`lsm stack up` starts it, `down` ends it first. A service that dies again at once is restarted with
backoff: it may wait for somebody who frees a disk or a port. A server hangs when it has answered
before, and then gives no answer for minutes: a busy machine answers late, and a restart costs runs.
"""

import os
import signal
import threading
import time
from dataclasses import dataclass, field

from flows.errors import ServiceFailed
from flows.settings import Settings
from flows.stack.local import SUPERVISOR
from flows.stack.services import (
    Service,
    keep_services,
    services,
    stack_lock_if_free,
    stop_process,
)

PAUSE = 1.0
LONGEST_PAUSE = 60.0
QUESTION_PAUSE = 20.0
LONGEST_SILENCE = 180.0
"""How often a server is asked, and how long it may be silent; in seconds."""
QUESTIONS = 5
"""Without an answer at least, since the supervisor itself may have been asleep."""


@dataclass
class Backoff:
    """When a service may be restarted, and how long it has to wait if it dies again."""

    at: float = 0.0
    pause: float = PAUSE

    def is_over(self, now: float) -> bool:
        """Return whether it may be restarted now, and if so, let the next time come later."""
        if now < self.at:
            return False
        has_lived = now > self.at + 2 * LONGEST_PAUSE
        self.pause = PAUSE if has_lived else min(2 * self.pause, LONGEST_PAUSE)
        self.at = now + self.pause
        return True


@dataclass
class Health:
    """When one process was asked and when it answered, by the monotonic clock."""

    service: Service
    asked: float = field(default_factory=time.monotonic)
    answered: float | None = None
    n_failures: int = 0

    def is_due(self) -> bool:
        """Return whether it is time to ask again."""
        return time.monotonic() - self.asked >= QUESTION_PAUSE and bool(self.service.process())

    def check(self) -> None:
        """Ask once; this takes a while if there is no answer."""
        if self.service.condition() == "runs":
            self.answered, self.n_failures = time.monotonic(), 0
        else:
            self.n_failures += 1
        self.asked = time.monotonic()

    def silence(self) -> float | None:
        """Return for how many seconds a server that hangs has not answered; None if it does not."""
        if self.answered is None or self.n_failures < QUESTIONS:
            return None
        silent = time.monotonic() - self.answered
        return silent if silent >= LONGEST_SILENCE else None


def supervise(settings: Settings, is_over: threading.Event) -> None:
    """Restart services that have died or hang, until asked to end."""
    backoffs: dict[str, Backoff] = {}
    healths: dict[Service, Health] = {}
    last_problem = ""
    while not is_over.wait(PAUSE):
        try:
            healths = {
                service: healths.get(service) or Health(service)
                for service in services(settings)
                if service.health
            }
            _check_one(list(healths.values()))
            _restart_what_died(settings, backoffs, healths)
            last_problem = ""
        except (OSError, ServiceFailed) as error:
            # A full disk, or a file that somebody damaged: it may be mended.
            if str(error) != last_problem:
                print(f"cannot look after the services: {error}", flush=True)
            last_problem = str(error)


def _check_one(healths: list[Health]) -> None:
    """Ask the server that was asked longest ago, if it is time.

    Only one, since what has died waits meanwhile, and without the lock, which others may want.
    """
    due = [health for health in healths if health.is_due()]
    if due:
        min(due, key=lambda health: health.asked).check()


def _restart_what_died(
    settings: Settings, backoffs: dict[str, Backoff], healths: dict[Service, Health]
) -> None:
    """Restart what has died; each is written down as soon as it runs, or ended if it cannot be.

    Nothing is done while somebody starts or stops the stack: it would undo what they write.
    """
    with stack_lock_if_free(settings.state) as is_free:
        if not is_free:
            return
        known = services(settings)
        for index, service in enumerate(known):
            why = _why_restart(service, healths.get(service))
            backoff = backoffs.setdefault(service.name, Backoff())
            if why is None or not backoff.is_over(time.monotonic()):
                continue
            if process := service.process():
                stop_process(process)
            service.end_remains()
            known[index] = again = service.start(os.environ)
            print(f"{service.name} {why} and was started again as process {again.pid}", flush=True)
            try:
                keep_services(settings, known)
            except OSError:
                if process := again.process():
                    stop_process(process)
                raise


def _why_restart(service: Service, health: Health | None) -> str | None:
    """Return why a service is to be restarted, or None if it is well."""
    if service.name == SUPERVISOR:
        return None
    if service.process() is None:
        return "had ended"
    silent = health.silence() if health else None
    return None if silent is None else f"had not answered for {silent:.0f} s"


def main() -> None:
    """Supervise until SIGTERM; what is being started then is still written down."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    supervise(Settings.from_environment(), is_over)


if __name__ == "__main__":
    main()
