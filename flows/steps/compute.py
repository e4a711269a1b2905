"""Where independent pieces of work run: the cores of this machine, or a Dask cluster."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from flows.errors import BadInput, ProcessDied


def map_unordered(
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    *,
    n_workers: int,
    dask_address: str | None,
) -> Iterator[Any]:
    """Yield `function(*each)` as results come in; the first failure ends it.

    Pieces of work must be safe to do again: whoever calls this after a failure repeats the missing.
    """
    if dask_address is not None:
        yield from _on_dask(function, list(arguments), dask_address)
    else:
        yield from _on_this_machine(function, list(arguments), n_workers)


def _on_this_machine(
    function: Callable[..., Any], arguments: list[tuple[Any, ...]], n_workers: int
) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    n_processes = max(1, min(n_workers, len(arguments)))
    with ProcessPoolExecutor(n_processes, context, initializer=_use_one_thread) as pool:
        futures = [pool.submit(function, *each) for each in arguments]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise ProcessDied(
                f"a process of {function.__name__} died; what was written is kept, "
                "so starting it again continues"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _on_dask(
    function: Callable[..., Any], arguments: list[tuple[Any, ...]], address: str
) -> Iterator[Any]:
    from distributed import Client
    from distributed import as_completed as completed

    try:
        client = Client(address, timeout=20)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no Dask scheduler answers at {address!r} ({error}); check LSM_DASK"
        ) from error
    with client:
        futures = [client.submit(function, *each, pure=False) for each in arguments]
        for future in completed(futures):
            yield future.result()


def _use_one_thread() -> None:
    """Leave the cores to the processes: one thread each, set before numpy is loaded."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
