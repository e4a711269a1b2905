"""The results of runs, between their type and the files that keep them."""

import json

from lsm_core.result import Begun, Epoch, Result
from storage.errors import CheckpointCorrupt
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

FAILURE = "failure.txt"
"""The traceback of a try that failed, beside the checkpoints from which the next one continues."""


def stored_result(root: Location, identity: str) -> Result | None:
    """Return what came of a run, or None while it is not finished."""
    return result_in(Checkpoints(root / "checkpoints" / identity))


def result_in(checkpoints: Checkpoints) -> Result | None:
    """Return the result that a run's folder has, or None while it is not finished."""
    plain = checkpoints.result()
    if plain is None:
        return None
    try:
        return Result.from_plain(plain)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointCorrupt(
            f"{checkpoints.location / 'result.json'} is not the result of a run: {error}; remove "
            "it to evaluate the run again"
        ) from error


def keep_result(checkpoints: Checkpoints, result: Result) -> None:
    """Keep the outcome of a run; with it the run counts as finished."""
    checkpoints.write_result(result.to_plain())


def begun_in(checkpoints: Checkpoints) -> Begun | None:
    """Return what a run's folder says of its beginning; runs of older versions say nothing."""
    kept = checkpoints.location / "begun.json"
    try:
        return Begun.from_plain(json.loads(kept.read_bytes()))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointCorrupt(f"{kept} cannot be read: {error}; remove it") from error


def keep_begun(checkpoints: Checkpoints, begun: Begun) -> Begun:
    """Keep that a run was begun, and return it; one that goes on was begun when it was."""
    known = begun_in(checkpoints)
    if known is not None:
        return known
    (checkpoints.location / "begun.json").write_bytes(json.dumps(begun.to_plain()).encode())
    return begun


def keep_traceback(checkpoints: Checkpoints, text: bytes) -> None:
    """Keep where the last try of a run failed."""
    (checkpoints.location / FAILURE).write_bytes(text)


def kept_traceback(checkpoints: Checkpoints) -> bytes | None:
    """Return where the last try of a run failed; None if no error has ended it."""
    try:
        return (checkpoints.location / FAILURE).read_bytes()
    except FileNotFoundError:
        return None


def saved_history(checkpoints: Checkpoints) -> tuple[Epoch, ...]:
    """Return the epochs that the last checkpoint of a run has passed; none without one."""
    from lsm_core.training.state import saved_notes  # torch takes seconds

    content = checkpoints.latest()
    if content is None:
        return ()
    try:
        return tuple(Epoch(**epoch) for epoch in saved_notes(content)["history"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointCorrupt(
            f"the checkpoint in {checkpoints.location} does not hold a history: {error}"
        ) from error
