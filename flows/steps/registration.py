"""Trained models into the registry of the tracking store, one name a benchmark."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.steps.judgement import LOCKED, TEST_SAMPLES, samples_tag, settle_champion
from flows.steps.packaging import facts, package
from flows.steps.surrogates import trained_run
from flows.steps.training import open_tracking
from storage.claims import Claims
from storage.errors import StoreUnavailable
from storage.location import Location
from storage.model_registry import Alias, ModelRegistry, ModelVersion, registered_name

Results = list[dict[str, Any]]


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
    registered: dict[str, Results] = field(default_factory=dict)
    missed: Results = field(default_factory=list)
    why: str = ""

    def add(self, result: dict[str, Any]) -> None:
        """Register the model of a finished run, unless it is registered."""
        if self.missed:
            self.missed.append(result)  # the others need not wait for an absent server again
            return
        try:
            # Asks once, where a client of the registry would ask again for minutes.
            _ = open_tracking(self.tracking_uri, self.root).experiment_id
            version = register_once(result["identity"], self.root, self.tracking_uri)
        except StoreUnavailable as error:
            self.why = str(error)
            self.missed.append(result)
        except Exception as error:  # whatever it is, the training is done and kept
            self.report(f"run {result['identity']} is not registered: {error}")
        else:
            self.report(f"{version.name}/{version.number}")
            self.registered.setdefault(result["benchmark"], []).append(result)

    def settle(self) -> None:
        """Let the best run of each benchmark challenge its champion; tell what was missed."""
        for benchmark, results in self.registered.items():
            try:
                with Claims(self.root / "claims").held(f"champion-{benchmark}"):
                    verdict = settle_champion(results, self.root, self.tracking_uri)
            except Exception as error:  # as above
                self.report(f"the champion stays: {error}")
                continue
            if verdict is not None:
                self.report(f"{verdict['model']}/{verdict['challenger']}: {verdict['reason']}")
            n_unfair = sum(result.get("selection") == "best_test" for result in results)
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
    registry, name = ModelRegistry(tracking_uri), registered_name(run.benchmark.name)
    # Another flow may look for the same run at the same time and, like this one, not find it.
    with Claims(root / "claims").held(f"register-{identity}"):
        known = registry.of_run(name, identity)
        if known is not None:
            return known
        with tempfile.TemporaryDirectory() as scratch:
            folder = package(run, Path(scratch) / name)
            tags = model_tags(facts(run)) | samples_tag(run.result, root)
            return registry.add(folder, name, tags)


def register_run(
    identity: str, root: Location, tracking_uri: str, alias: Alias | None = None
) -> ModelVersion:
    """Add the model of a finished run to the registry and return its version.

    It gets the alias if one is given. The first model of a benchmark becomes its champion, so that
    there is always one to compare with.
    """
    version = register_once(identity, root, tracking_uri)
    registry, name = ModelRegistry(tracking_uri), version.name
    if alias is not None:
        registry.set_alias(name, alias, version.number)
    if registry.with_alias(name, "champion") is None:
        registry.set_name_tag(name, LOCKED, version.tags.get(TEST_SAMPLES, ""))
        registry.set_alias(name, "champion", version.number)
    return registry.find(f"{name}/{version.number}")


def registered_models(tracking_uri: str) -> list[dict[str, Any]]:
    """Return all versions of all models as plain data, newest first within a name."""
    registry = ModelRegistry(tracking_uri)
    return [version.plain() for name in registry.names() for version in registry.versions(name)]


def promote(reference: str, tracking_uri: str) -> ModelVersion:
    """Make the version that a text like `lsm-darcy/3` names the champion, and return it.

    If it was trained on other data than the champion, its test samples judge from now on, or those
    of the next judgement if they are not known: whoever promotes decides by what models are
    measured, too. The champion before it does not come back by the verdict that made it one.
    """
    registry = ModelRegistry(tracking_uri)
    version = registry.find(reference)
    champion = registry.with_alias(version.name, "champion")
    if champion is not None and champion.tags.get("dataset") != version.tags.get("dataset"):
        registry.set_name_tag(version.name, LOCKED, version.tags.get(TEST_SAMPLES, ""))
    registry.set_alias(version.name, "champion", version.number)
    if champion is not None and champion.number != version.number:
        verdict = {"promoted": "False", "reason": "another was promoted by hand"}
        tags = {f"judged/{key}": value for key, value in verdict.items()}
        registry.set_tags(champion, {**tags, "judged/against": str(version.number)})
    return registry.find(f"{version.name}/{version.number}")


def model_tags(known: dict[str, Any]) -> dict[str, str]:
    """Return what is known of a model as the tags of its version: searchable, metrics included."""
    tags = {name: str(value) for name, value in known.items() if name not in ("test", "added")}
    tags["added"] = json.dumps(known["added"])
    scores = {f"test/{name}": f"{value:.6g}" for name, value in known["test"].items()}
    return tags | scores
