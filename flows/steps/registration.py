"""Trained models into the registry of the tracking store, one name a benchmark."""

import tempfile
from pathlib import Path
from typing import Any

from flows.steps.packaging import facts, package
from flows.steps.surrogates import trained_run
from storage.location import Location
from storage.model_registry import Alias, ModelRegistry, ModelVersion, registered_name


def register_run(
    identity: str, root: Location, tracking_uri: str, alias: Alias | None = None
) -> ModelVersion:
    """Add the model of a finished run to the registry and return its version.

    It gets the alias if one is given. The first model of a benchmark becomes its champion, so that
    there is always one to compare with.
    """
    run = trained_run(identity, root)
    registry, name = ModelRegistry(tracking_uri), registered_name(run.benchmark.name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = package(run, Path(scratch) / name)
        version = registry.add(folder, name, model_tags(facts(run)))
    if alias is not None:
        registry.set_alias(name, alias, version.number)
    if registry.with_alias(name, "champion") is None:
        registry.set_alias(name, "champion", version.number)
    return registry.find(f"{name}/{version.number}")


def registered_models(tracking_uri: str) -> list[dict[str, Any]]:
    """Return all versions of all models as plain data, newest first within a name."""
    registry = ModelRegistry(tracking_uri)
    return [version.plain() for name in registry.names() for version in registry.versions(name)]


def promote(reference: str, tracking_uri: str) -> ModelVersion:
    """Make the version that a text like `lsm-darcy/3` names the champion, and return it."""
    registry = ModelRegistry(tracking_uri)
    version = registry.find(reference)
    registry.set_alias(version.name, "champion", version.number)
    return registry.find(f"{version.name}/{version.number}")


def model_tags(known: dict[str, Any]) -> dict[str, str]:
    """Return what is known of a model as the tags of its version: searchable, metrics included."""
    tags = {name: str(value) for name, value in known.items() if name != "test"}
    scores = {f"test/{name}": f"{value:.6g}" for name, value in known["test"].items()}
    return tags | scores
