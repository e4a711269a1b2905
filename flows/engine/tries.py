"""When a flow of a deployment is tried again: once, as prefect.toml says, and where it is of use.

A network or a server that was away for a minute deserves another try. What a person has to mend
does not, nor cells that have failed: each was tried again by itself.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

import httpx
from prefect import get_client
from prefect.client.schemas.objects import FlowRunPolicy
from prefect.context import FlowRunContext

from flows.errors import BAD_INPUT, CellsFailed, GenerationFailed

HOPELESS = (*BAD_INPUT, CellsFailed, GenerationFailed)
A_WEEK = 7 * 86400
A_MONTH = 30 * 86400
"""How many seconds a cell, and a comparison that waits for cells, may take."""

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def tried_once_more(body: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Return the body of a flow, which is not tried again after an error that would come again."""

    @wraps(body)
    def run(*given: Given.args, **named: Given.kwargs) -> Returned:
        try:
            return body(*given, **named)
        except HOPELESS:
            _give_up()
            raise

    return run


def _give_up() -> None:
    """Tell the server that this run is not to be tried again."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or not context.flow_run.empirical_policy.retries:
        return
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        client.update_flow_run(context.flow_run.id, empirical_policy=FlowRunPolicy(retries=0))
