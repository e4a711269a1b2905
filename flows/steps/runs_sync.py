"""Send what processes that are gone have left in their journals."""

from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreUnavailable
from storage.run_delivery import Delivery
from storage.run_journal import Heading, Journal, journals, without_credentials


@dataclass(frozen=True, kw_only=True)
class SyncedRun:
    """What came of one journal: entries sent now, entries left, and why any are left."""

    identity: str
    run_id: str | None
    sent: int
    left: int
    reason: str = ""


def sync(journal_folder: Path, tracking_uri: str | None = None) -> list[SyncedRun]:
    """Send the journals in a folder to their tracking stores and return what came of each.

    A journal does not hold credentials. They come from `tracking_uri` if that is the same store,
    else from MLflow's own variables. A journal that another process is sending is left to it.
    """
    away: dict[str, str] = {}
    return [_sync_one(journal, tracking_uri, away) for journal in journals(journal_folder)]


def describe(synced: list[SyncedRun]) -> list[str]:
    """Return a line for each journal, for people."""
    if not synced:
        return ["nothing waits: every run is in its tracking store"]
    return [
        f"{run.identity}: {run.sent} sent, {run.left} left{run.reason and ': '}{run.reason}"
        for run in synced
    ]


def _sync_one(journal: Journal, tracking_uri: str | None, away: dict[str, str]) -> SyncedRun:
    heading = journal.heading
    if heading is None and journal.waiting:
        return _outcome(journal, reason=f"the first line of {journal.path} cannot be read")
    with journal.sending() as is_ours:
        if not is_ours:
            return _outcome(journal, reason="another process is sending it")
        if heading is None or not journal.waiting:
            journal.remove_if_ended()
            return _outcome(journal)
        if heading.uri in away:
            return _outcome(journal, reason=away[heading.uri])
        delivery = Delivery(journal, _uri(heading, tracking_uri))
        try:
            delivery.send()
        except StoreUnavailable as error:
            if not delivery.was_answered:
                away[heading.uri] = str(error)  # the next ones need not wait for it again
            return _outcome(journal, delivery, str(error))
        journal.remove_if_ended()
        return _outcome(journal, delivery)


def _uri(heading: Heading, tracking_uri: str | None) -> str:
    """Return the address with credentials if it is the one that is set, else the bare one."""
    if tracking_uri is not None and without_credentials(tracking_uri) == heading.uri:
        return tracking_uri
    return heading.uri


def _outcome(journal: Journal, delivery: Delivery | None = None, reason: str = "") -> SyncedRun:
    if journal.refused:
        reason = f"{len(journal.refused)} refused ({journal.refused[0]}), kept beside the journals"
    elif not reason and not journal.is_ended:
        reason = "the run has not ended"
    return SyncedRun(
        identity=journal.heading.identity if journal.heading else journal.path.stem,
        run_id=journal.run_id,
        sent=delivery.n_sent if delivery else 0,
        left=len(journal.waiting),
        reason=reason,
    )
