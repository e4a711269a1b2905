"""Trained models into the registry of the tracking store, one name a benchmark."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.steps.models.champions import TEST_SAMPLES, decide_champion
from flows.steps.models.judgement import samples_tag, settle_champion
from flows.steps.models.packaging import TrainedRun, model_facts, package, trained_run
from flows.steps.models.trust import with_trust
from flows.steps.results import stored_result
from flows.steps.training.run_record import final_figures, now, stored_record, used_dataset
from lsm_core.result import Result
from storage.errors import NoSuchModel, StoreUnavailable
from storage.location import Location
from storage.runs.leases import Leases
from storage.tracking.echo import RunRecord, send
from storage.tracking.model_state import Change, ModelVersion
from storage.tracking.registry import Alias, ModelRegistry, Upload, registered_name
from storage.tracking.store import open_tracking


@dataclass
class Registrar:
    """Registers the models of finished runs, and lets the best of each benchmark be its champion.

    A training is done when its result is in the store: whatever goes wrong here is told and
    nothing more. Runs that are registered already are left as they are, so that finishing the
    same runs again makes up for what was missed.
    """

    root: Location
    tracking_uri: str
    report: Callable[[str], None]
    registered: dict[str, list[Result]] = field(default_factory=dict)
    missed: list[Result] = field(default_factory=list)
    why: str = ""

    def add(self, result: Result) -> None:
        """Register the model of a finished run, unless it is registered."""
        if self.missed:
            self.missed.append(result)  # the others need not wait for an absent server again
            return
        try:
            # Asks once, where a client of the registry would ask again for minutes.
            _ = open_tracking(self.tracking_uri, self.root).experiment_id
            version = register_once(result.identity, self.root, self.tracking_uri)
        except StoreUnavailable as error:
            self.why = str(error)
            self.missed.append(result)
        except Exception as error:  # whatever it is, the training is done and kept
            self.report(f"run {result.identity} is not registered: {error}")
        else:
            self.report(str(version))
            self.registered.setdefault(result.benchmark, []).append(result)

    def settle(self) -> None:
        """Let the best run of each benchmark challenge its champion; tell what was missed."""
        for benchmark, results in self.registered.items():
            try:
                with Leases(self.root / "claims").hold(f"champion-{benchmark}"):
                    verdict = settle_champion(results, self.root, self.tracking_uri)
            except Exception as error:  # as above
                self.report(f"the champion stays: {error}")
                continue
            if verdict is not None:
                self.report(f"{verdict.model}/{verdict.challenger}: {verdict.reason}")
            n_unfair = sum(result.selection == "best_test" for result in results)
            if n_unfair:
                self.report(
                    f"{n_unfair} runs of {benchmark} had their epoch chosen by the test samples, "
                    "by which champions are judged, and do not challenge"
                )
        if self.missed:
            self.report(
                f"{len(self.missed)} finished runs are not registered: {self.why}; the same "
                "command registers them later, without training again"
            )


def register_once(identity: str, root: Location, tracking_uri: str) -> ModelVersion:
    """Return the version of a finished run, which is added if there is none; aliases stay."""
    run = trained_run(identity, root)
    record = ModelRegistry(tracking_uri, root).record
    name = registered_name(run.benchmark.name)
    version = record.state(name).of_run(identity)
    if version is None:
        version = record.add(name, model_tags(run.facts) | samples_tag(run.result, root))
    echo_models(name, root, tracking_uri)
    return version


def echo_models(name: str, root: Location, tracking_uri: str) -> int:
    """Send what MLflow lacks of the models of a name; return how much that was."""
    registry = ModelRegistry(tracking_uri, root)

    @contextmanager
    def upload_of(version: ModelVersion) -> Iterator[Upload]:
        with tempfile.TemporaryDirectory() as scratch:
            result = stored_result(root, version.tags["identity"])
            if result is None:
                yield _without_run(version, registry, Path(scratch))
            else:
                yield _of_run(result, registry, Path(scratch))

    # Two that upload the same version would make two of it.
    with Leases(root / "claims").hold(f"echo-{name}"):
        _complete_tags(name, registry)
        return registry.echo(name, upload_of)


def _of_run(result: Result, registry: ModelRegistry, scratch: Path) -> Upload:
    record = stored_record(registry.root, result.identity)
    assert record is not None
    sent = send(open_tracking(registry.uri, registry.root), record)
    figures = final_figures(result)
    return Upload(
        run_id=sent.run_id,
        folder=package(_trusted(result.identity, registry.root), scratch / "model"),
        name=f"{result.benchmark}-{result.model}",
        parameters=record.parameters,
        figures=[each for each in figures if not each.key.startswith("rollout/")],
        dataset=used_dataset(result),
    )


def _trusted(identity: str, root: Location) -> TrainedRun:
    """Return a run with its calibration, which goes with the model wherever that goes."""
    return with_trust(trained_run(identity, root), root)


def _without_run(version: ModelVersion, registry: ModelRegistry, scratch: Path) -> Upload:
    """Return what can be kept of a run that was removed from the store: its number and tags.

    Its model, too, if MLflow has that under the name that it had before.
    """
    identity = version.tags["identity"]
    bare = RunRecord(identity=identity, experiment=version.name, name=str(version), started=now())
    sent = send(open_tracking(registry.uri, registry.root), bare)
    try:
        folder = registry.download_earlier(version, scratch)
    except (NoSuchModel, StoreUnavailable):
        folder = scratch / "model"
        folder.mkdir()
        (folder / "README.md").write_text(f"Run {identity} is not in {registry.root} any more.\n")
    return Upload(run_id=sent.run_id, folder=folder, name=version.tags.get("model", "model"))


def _complete_tags(name: str, registry: ModelRegistry) -> None:
    """Note what older versions of this project did not tell of a model, but its run does."""
    for version in registry.state(name).newest_first():
        if "n_test" not in version.tags:
            result = stored_result(registry.root, version.tags["identity"])
            if result is not None:
                registry.record.add(name, model_tags(model_facts(result)))


def register_run(
    identity: str, root: Location, tracking_uri: str, alias: Alias | None = None
) -> ModelVersion:
    """Add the model of a finished run to the registry and return its version.

    It gets the alias if one is given. The first model of a league becomes its champion, so that
    there is always one to compare with.
    """
    version = register_once(identity, root, tracking_uri)
    registry = ModelRegistry(tracking_uri, root)
    if registry.state(version.name).champion(version.league) is None:
        reason = f"the first champion of {version.league or 'its kind'}"
        locked = version.tags.get(TEST_SAMPLES, "")
        decide_champion(registry, version, "First", reason, locked=locked)
    elif alias == "champion":
        decide_champion(registry, version, "ByHand", "registered as champion")
    if alias == "challenger":
        change = Change(aliases={alias: version.number}, reason="registered to challenge")
        registry.note(version.name, change)
    return registry.find(str(version))


def registered_models(root: Location, tracking_uri: str) -> list[dict[str, Any]]:
    """Return all versions of all models as plain data, newest first within a name."""
    record = ModelRegistry(tracking_uri, root).record
    return [
        version.to_plain()
        for name in record.names()
        for version in record.state(name).newest_first()
    ]


def model_tags(known: dict[str, Any]) -> dict[str, str]:
    """Return what is known of a model as the tags of its version: searchable, metrics included."""
    tags = {name: str(value) for name, value in known.items() if name not in ("test", "added")}
    tags["added"] = json.dumps(known["added"])
    scores = {f"test/{name}": f"{value:.6g}" for name, value in known["test"].items()}
    return tags | scores
