"""Runs as they were recorded before each problem had an experiment, and how they are moved.

MLflow moves no run. So one is begun anew from the store, gets what only MLflow knows, the load of
its machine and what people wrote or attached, and the old one is deleted, from which MLflow can
bring it back. Whoever is killed in between begins again: equal points are one row.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mlflow
from mlflow.entities import Metric, Run, RunTag, ViewType

from storage.tracking.echo import FILES, POINTS_AT_ONCE, RunRecord, send
from storage.tracking.model_record import EARLIER_PREFIX
from storage.tracking.store import Tracking

EXPERIMENT = "benchmark"
REBUILT = ("train/", "validation/", "test/", "time/", "memory/", "model/", "leaderboard/")
"""What metrics begin with that the store has, too."""


def earlier_runs(tracking: Tracking) -> list[Run]:
    """Return the runs that are in the one experiment there was."""
    with tracking.reached():
        experiment = tracking.client.get_experiment_by_name(EXPERIMENT)
        if experiment is None or experiment.lifecycle_stage != "active":
            return []
        found: list[Run] = []
        token = None
        while True:
            page = tracking.client.search_runs(
                [experiment.experiment_id],
                run_view_type=ViewType.ACTIVE_ONLY,
                max_results=1000,
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                return found


def move_run(tracking: Tracking, run: Run, known: RunRecord | None, experiment: str) -> None:
    """Bring a run to another experiment: as the store knows it, or as MLflow does if it does not.

    What is in MLflow alone comes with it. Then the run is deleted where it was.
    """
    client = tracking.client
    with tracking.reached():
        points = [p for p in _points(client, run) if known is None or not _is_rebuilt(p)]
        tags = {k: v for k, v in run.data.tags.items() if k != FILES}
    if known is not None and known.status is None:  # of what was cut off the store knows no end
        known = replace(known, status=run.info.status, ended=run.info.end_time)
    record = known or RunRecord(
        identity=run.data.tags.get("identity") or run.info.run_id,
        experiment=experiment,
        name=run.info.run_name,
        started=run.info.start_time,
        tags=tags,
        parameters=run.data.params,
        status=run.info.status,
        ended=run.info.end_time,
    )
    sent = send(tracking, record)
    with tracking.reached():
        for first in range(0, len(points), POINTS_AT_ONCE):
            client.log_batch(sent.run_id, metrics=points[first : first + POINTS_AT_ONCE])
        has = client.get_run(sent.run_id).data.tags
        own = [RunTag(name, value) for name, value in tags.items() if name not in has]
        client.log_batch(sent.run_id, tags=own)
        _copy_files(tracking, run, sent.run_id, all_of_them=known is None)
        client.delete_run(run.info.run_id)


def remove_earlier_experiment(tracking: Tracking) -> bool:
    """Delete the one experiment there was, once all runs and models of it are elsewhere.

    MLflow can bring it back. Returns whether it was deleted.
    """
    with tracking.reached():
        experiment = tracking.client.get_experiment_by_name(EXPERIMENT)
        if experiment is None or experiment.lifecycle_stage != "active":
            return False
        number = experiment.experiment_id
        if tracking.client.search_runs([number], max_results=1):
            return False
        # Its models are those of registered names that there are no more.
        if tracking.client.search_registered_models(f"name LIKE '{EARLIER_PREFIX}%'"):
            return False
        tracking.client.delete_experiment(number)
    return True


def _is_rebuilt(point: Metric) -> bool:
    return bool(point.key.startswith(REBUILT))


def _points(client: mlflow.MlflowClient, run: Run) -> Iterator[Metric]:
    for name in run.data.metrics:
        yield from client.get_metric_history(run.info.run_id, name)


def _copy_files(tracking: Tracking, run: Run, to: str, *, all_of_them: bool) -> None:
    rebuilt = () if all_of_them else ("result.json", "sample.svg")
    for file in tracking.client.list_artifacts(run.info.run_id):
        if file.path in rebuilt:
            continue
        with tempfile.TemporaryDirectory() as folder:
            brought = mlflow.artifacts.download_artifacts(
                run_id=run.info.run_id,
                artifact_path=file.path,
                dst_path=folder,
                tracking_uri=tracking.uri,
            )
            if Path(brought).is_dir():
                tracking.client.log_artifacts(to, brought, file.path)
            else:
                tracking.client.log_artifact(to, brought)
