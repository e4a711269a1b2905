"""Serve the champion of a problem over HTTP, by MLflow's own server."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from flows.steps.models.packaging import pyfunc
from flows.steps.training.sources import module_path
from storage.location import Location
from storage.tracking.registry import ModelRegistry

FOLLOWING = "flows.steps.models.following"
SECONDS = 5.0
"""How long a version may go on answering after the alias has moved."""


def write_following(
    reference: str, folder: Path, root: Location, tracking_uri: str, seconds: float = SECONDS
) -> Path:
    """Write an MLflow model that follows an alias, like `pde-darcy@champion`; return its folder.

    NoSuchModel if no version has the alias.
    """
    version = ModelRegistry(tracking_uri, root).find(reference)
    settings = folder.with_name(f"{folder.name}.json")
    alias = reference.partition("@")[2]
    known = {"name": version.name, "alias": alias, "seconds": seconds}
    settings.write_text(json.dumps(known), encoding="utf-8")
    pyfunc().save_model(
        folder,
        python_model=str(module_path(FOLLOWING)),
        artifacts={"settings": str(settings)},
        pip_requirements=[],
    )
    return folder


def serving_command(folder: Path, host: str, port: int) -> tuple[str, ...]:
    """Return the command that serves a model folder."""
    mlflow = (sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local")
    return (*mlflow, "-m", str(folder), "--host", host, "--port", str(port))


def serving_environment(tracking_uri: str) -> Mapping[str, str]:
    """Return the environment of that command: it asks the registry of the tracking store.

    MLflow starts a web server by its bare name, which is beside this interpreter.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    uris = {"MLFLOW_TRACKING_URI": tracking_uri, "MLFLOW_REGISTRY_URI": tracking_uri}
    return {**os.environ, **uris, "PATH": path}
