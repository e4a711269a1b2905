"""Files beside the record of a finished run: each attached once, now or when the store is back."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from storage.run_delivery import Delivery
from storage.run_journal import Heading, Journal, without_credentials
from storage.run_log import Tracking
from storage.tracking_store import told

Files = Mapping[str, Callable[[], bytes]]
"""Names, and what makes the contents, which is asked only if a file is missing."""


def attach(tracking: Tracking, identity: str, files: Files) -> None:
    """Attach the files that a run in the store does not have; its state and times stay.

    StoreUnavailable if the store does not answer, LookupError if it does not know the run.
    """
    number = tracking.experiment_id
    with told(tracking.uri):
        runs = tracking.client.search_runs([number], f"tags.identity = '{identity}'")
        # Of a run that was begun twice, the one that was gone on with.
        run = next((each for each in runs if each.data.metrics), next(iter(runs), None))
        known = tracking.client.list_artifacts(run.info.run_id) if run else []
    if run is None:
        shown = without_credentials(tracking.uri)
        raise LookupError(f"the tracking store {shown} has no run {identity}")
    there = {file.path for file in known}
    for name, made in files.items():
        if name in there:
            continue
        content = made()
        with told(tracking.uri), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            file.write_bytes(content)
            tracking.client.log_artifact(run.info.run_id, str(file))


def queue(tracking: Tracking, identity: str, files: Files) -> bool:
    """Let files wait in the journal of a run that waits there itself; False if it does not.

    Whoever sends the journal, `lsm runs sync` or `send_queued`, sends them with it.
    """
    journal = _journal(tracking, identity)
    try:
        journal.read()
        if journal.heading is None:
            return False
        there = {entry.content["file"] for entry in journal.waiting if entry.kind == "file"}
        for name, made in files.items():
            if name not in there:
                journal.append_file(name, made(), time.time_ns() // 1_000_000)
        return True
    finally:
        journal.close()


def send_queued(tracking: Tracking, identity: str) -> None:
    """Send what waits in the journal of a run, unless another process does; or StoreUnavailable."""
    journal = _journal(tracking, identity)
    try:
        with journal.sending() as is_ours:
            if is_ours:
                Delivery(journal, tracking.uri).send()
                journal.remove_if_ended()
    finally:
        journal.close()


def _journal(tracking: Tracking, identity: str) -> Journal:
    """Return a hold on the journal of a run, which need not be there."""
    named = Heading(
        uri=tracking.uri,
        experiment=tracking.experiment,
        artifacts=tracking.artifacts.url,
        identity=identity,
        name="",
        tags={},
        started=0,
    )
    return Journal(tracking.journal / named.file_name)
