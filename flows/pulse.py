"""Whether a server that runs still answers.

A busy machine answers late; one that hangs does not answer at all. So it takes minutes without any
answer, and several questions, before a server counts as lost, and one that has never answered is
still starting.
"""

import time
from dataclasses import dataclass, field

from flows.services import is_healthy
from flows.stack_file import Service


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often a server is asked, and how long it may be silent; in seconds."""

    pause: float = 20.0
    answer: float = 10.0
    silence: float = 180.0
    questions: int = 5
    """Asked in vain at least, since whoever asks may have been asleep."""


@dataclass
class Pulse:
    """When one process was asked, and when it answered, by a clock that nobody sets."""

    service: Service
    patience: Patience
    asked: float = field(default_factory=time.monotonic)
    answered: float | None = None
    in_vain: int = 0

    def is_due(self) -> bool:
        """Return whether it is time to ask again."""
        return time.monotonic() - self.asked >= self.patience.pause

    def feel(self) -> None:
        """Ask once; this takes a while if there is no answer."""
        if is_healthy(self.service.health, self.patience.answer):
            self.answered, self.in_vain = time.monotonic(), 0
        else:
            self.in_vain += 1
        self.asked = time.monotonic()

    def silence(self) -> float | None:
        """Return for how many seconds a server that is lost has not answered; None if it is not."""
        if self.answered is None or self.in_vain < self.patience.questions:
            return None
        silent = time.monotonic() - self.answered
        return silent if silent >= self.patience.silence else None
