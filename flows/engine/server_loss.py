"""Errors that say that Prefect's server is away, and not that something is wrong with the work.

A flow that ends with such an error is brought back by the server once that is there again, and so
is one that lost the store: `infra/automations.yaml` names the same errors. A parent of cells on a
pool waits for a while.
"""

import httpx
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.concurrency.v1.asyncio import ConcurrencySlotAcquisitionError as OlderSlotError
from prefect.exceptions import PrefectHTTPStatusError

from storage.errors import StoreInterrupted

OF_THE_SERVER = (httpx.TransportError, ConcurrencySlotAcquisitionError, OlderSlotError)
SERVER_ERROR = 500
ENDED_WITH = "Flow run encountered an exception: "
"""How Prefect's message of a flow that failed begins; the error's name and words follow."""


def is_server_loss(error: object) -> bool:
    """Return whether something is an error that says that Prefect's server does not answer.

    Nothing else here speaks with a server by httpx.
    """
    if isinstance(error, PrefectHTTPStatusError):
        return error.response.status_code >= SERVER_ERROR
    return isinstance(error, OF_THE_SERVER)


def tells_loss(message: str | None) -> bool:
    """Return whether the message of a failed run says that server or store were away."""
    name, _, words = (message or "").removeprefix(ENDED_WITH).partition(":")
    if not (message or "").startswith(ENDED_WITH):
        return False
    if name == PrefectHTTPStatusError.__name__:
        return words.strip().startswith("Server error")
    known = {ConcurrencySlotAcquisitionError, StoreInterrupted}
    return name in {*(each.__name__ for each in known), *_names(httpx.TransportError)}


def _names(error: type[Exception]) -> set[str]:
    """Return the names of an error and of all that are made of it."""
    return {error.__name__}.union(*(_names(each) for each in error.__subclasses__()))
