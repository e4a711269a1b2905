"""Where independent pieces of work run: the cores of this machine, or a Dask cluster."""

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any

from flows.errors import BadInput, ProcessDied
from storage.errors import translated


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
    from distributed import as_completed as completed

    with _client(address) as client, _translating(function, address):
        futures = [client.submit(function, *each, pure=False) for each in arguments]
        for future in completed(futures, loop=client.loop):
            result = future.result()
            # Or it would be done again, when nobody waits any more, if the worker that has it dies.
            future.release()
            yield result


def run_on_every_worker(function: Callable[..., Any], *arguments: Any, dask_address: str) -> None:
    """Call a function on each worker that a cluster has now, leaving out those that die."""
    with _client(dask_address) as client, _translating(function, dask_address):
        client.run(function, *arguments, on_error="ignore")


def _client(address: str) -> Any:
    from distributed import Client

    # It logs a traceback when it cannot connect again, of which we tell ourselves.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        # Not the default: what others compute in this process is not meant for the cluster.
        return Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no Dask scheduler answers at {address!r} ({error}); check LSM_DASK"
        ) from error


def _translating(function: Callable[..., Any], address: str) -> AbstractContextManager[None]:
    """Turn what happens to a cluster while the block runs into one sentence."""
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    def ours(error: Exception) -> Exception | None:
        if isinstance(error, KilledWorker):
            return ProcessDied(
                f"{error.allowed_failures + 1} Dask workers died of the same {function.__name__}, "
                f"the last at {error.last_worker.address}; what was written is kept: see the "
                "workers' logs, give them more memory and start it again"
            )
        if isinstance(error, CancelledError | CommClosedError):
            return ProcessDied(
                f"the Dask scheduler at {address} was lost during {function.__name__}; what was "
                "written is kept, so starting it again continues"
            )
        # Dask's own error of work that cannot be loaded there has the reason as its cause.
        reason = error if isinstance(error, ImportError) else error.__cause__
        if not isinstance(reason, ImportError | AttributeError):
            return None
        return BadInput(
            f"the Dask cluster at {address} cannot load {function.__name__} ({reason}); install "
            "the same version of this program, with its extras, on its scheduler and workers"
        )

    foreign = (KilledWorker, CancelledError, CommClosedError, ImportError, RuntimeError)
    return translated(*foreign, into=ours)


def _use_one_thread() -> None:
    """Leave the cores to the processes: one thread each, set before numpy is loaded."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
