"""Errors that say that Prefect's server is away, and not that something is wrong with the work.

A cell that ends with such an error has not failed, and is begun again. A flow that does is brought
back by the server once that is there again: `infra/automations.yaml` names the same errors.
"""

import time
from dataclasses import dataclass

import httpx
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.v1.asyncio import ConcurrencySlotAcquisitionError as OlderSlotError
from prefect.exceptions import PrefectHTTPStatusError

OF_THE_SERVER = (httpx.TransportError, ConcurrencySlotAcquisitionError, OlderSlotError)
SERVER_ERROR = 500


def is_server_loss(error: object) -> bool:
    """Return whether something is an error that says that Prefect's server does not answer.

    Nothing else here speaks with a server by httpx.
    """
    if isinstance(error, PrefectHTTPStatusError):
        return error.response.status_code >= SERVER_ERROR
    return isinstance(error, OF_THE_SERVER)


@dataclass
class ServerLosses:
    """How often work was cut off by a server that is away, and how often it may be."""

    pause: float = 5.0
    most: int = 60
    counted: int = 0

    def wait_out(self, outcome: object) -> bool:
        """Return whether work was lost with the server and may begin again, after a pause.

        The error itself is raised when it has happened too often.
        """
        if not is_server_loss(outcome):
            return False
        self.counted += 1
        if self.counted > self.most and isinstance(outcome, Exception):
            raise outcome
        time.sleep(self.pause)
        return True
