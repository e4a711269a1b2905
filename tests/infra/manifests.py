"""The declarations in infra/, read as data, and the tools that check them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
INFRA = REPOSITORY / "infra"
OVERLAYS = ("cpu", "gpu", "s3", "dask", "kubernetes-jobs")
JOB_TEMPLATE = "cell-job.yaml"


def tool(name: str) -> str:
    """Return the path of a program, beside Python or on the path; skip the test without it."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, so what it checks was not checked")
    return found


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end and return its exit code and all it said."""
    return subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
        **options,
    )


@dataclass(frozen=True)
class Process:
    """One container: what it starts, with which environment, from which image."""

    name: str
    image: str
    command: tuple[str, ...]
    environment: dict[str, str]
    """A value that comes from a secret is the name of the secret in <>."""


def compose() -> dict[str, Any]:
    """Return the compose file with its anchors merged."""
    return yaml.safe_load((INFRA / "compose.yaml").read_text())


def compose_processes() -> list[Process]:
    """Return the services of the compose file."""
    return [
        Process(
            name,
            service["image"],
            tuple(service.get("command", ())),
            {key: str(value) for key, value in service.get("environment", {}).items()},
        )
        for name, service in compose()["services"].items()
    ]


def kubernetes_documents() -> list[dict[str, Any]]:
    """Return every object of the base and the components, as written, without any tool."""
    return [
        document
        for path in sorted((INFRA / "kubernetes").rglob("*.yaml"))
        if path.name not in ("kustomization.yaml", JOB_TEMPLATE)
        for document in yaml.safe_load_all(path.read_text())
    ]


def config_maps() -> dict[str, dict[str, str]]:
    """Return the variables that the kustomizations generate, of all components together."""
    maps: dict[str, dict[str, str]] = {}
    for path in sorted((INFRA / "kubernetes").rglob("kustomization.yaml")):
        for entry in yaml.safe_load(path.read_text()).get("configMapGenerator", []):
            pairs = (literal.split("=", 1) for literal in entry.get("literals", []))
            maps.setdefault(entry["name"], {}).update(pairs)
    return maps


def pod_specs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the pods of whole workloads by name; a patch of one is not whole."""
    for document in kubernetes_documents():
        spec = document.get("spec", {}).get("template", {}).get("spec")
        if spec and "securityContext" in spec:
            yield document["metadata"]["name"], spec


def kubernetes_processes() -> list[Process]:
    """Return the containers of Kubernetes."""
    processes = []
    for name, spec in pod_specs():
        for container in spec["containers"]:
            environment: dict[str, str] = {}
            for source in container.get("envFrom", []):
                environment |= config_maps()[source["configMapRef"]["name"]]
            for entry in container.get("env", []):
                environment[entry["name"]] = entry.get("value") or _origin(entry["valueFrom"])
            command = tuple(container.get("command", ()))
            processes.append(Process(name, container["image"], command, environment))
    return processes


def _origin(source: dict[str, Any]) -> str:
    secret = source.get("secretKeyRef")
    return f"<{secret['key']}>" if secret else "1"
