"""One check for every file of infra/, prefect.yaml and prefect.toml: what is wrong with it.

Each takes the folder of a repository, or of a copy in which something was misspelt.
"""

import configparser
import importlib.metadata
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement

from tests.infra.job_template import rendered_job, template_complaints, worker_complaints
from tests.infra.known_names import settings_read, unknown_variables
from tests.infra.kubernetes_checks import overlay_complaints
from tests.infra.manifests import JOB_TEMPLATE, REPOSITORY, run, tool
from tests.infra.prefect_checks import automations_file, deployments_file, settings_file

Check = Callable[[Path], list[str]]
PRINTS = '#!/bin/sh\necho "psql $*" >> "$CALLS"\ncat >> "$CALLS"\n'
"""Stands for psql: notes how it is called and what it is told."""
NEEDED_BY_JOB_WORKER = {"iso8601", "kopf", "kubernetes-asyncio", "pyOpenSSL", "tenacity"}
"""What prefect-kubernetes brings that nothing else of ours needs, so that no pin names it."""


def compose_file(root: Path) -> list[str]:
    """Return unknown keys, variables that nobody reads, and services that are not there."""
    path = root / "infra/compose.yaml"
    done = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path)
    if done.returncode:
        return [done.stdout]
    declared = yaml.safe_load(path.read_text())
    found = []
    for service in declared["services"].values():
        given = {key: str(value) for key, value in service.get("environment", {}).items()}
        with pytest.MonkeyPatch.context() as patch:
            strange = unknown_variables(given, service.get("command", ()), patch)
        found += [f"nobody reads {name}" for name in strange]
        others = set(service.get("depends_on", ())) - set(declared["services"])
        found += [f"there is no service {name}" for name in others]
    return found


def compose_secrets(root: Path) -> list[str]:
    """Return secrets that the example names and compose does not ask for, and the reverse."""
    asked = re.findall(r"\$\{([A-Z_]+):\?", (root / "infra/compose.yaml").read_text())
    return _different(_assigned(root / "infra/compose.example.env"), set(asked))


def example_settings(root: Path) -> list[str]:
    """Return settings that the example names and nobody reads, and the reverse."""
    return _different(_assigned(root / "infra/example.env"), settings_read())


def _assigned(path: Path) -> set[str]:
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return {line.partition("=")[0] for line in lines}


def _different(given: set[str], expected: set[str]) -> list[str]:
    return [f"{name} is named in one place only" for name in given ^ expected]


def databases_script(root: Path) -> list[str]:
    """Return how the script, run with a psql that only listens, differs from what it promises."""
    script = root / "infra/postgres/databases.sh"
    secrets = {"PREFECT_DATABASE_PASSWORD": "a 'word'", "MLFLOW_DATABASE_PASSWORD": "another"}
    with tempfile.TemporaryDirectory() as folder:
        calls = Path(folder, "calls")
        Path(folder, "psql").write_text(PRINTS)
        Path(folder, "psql").chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        given = {"PATH": path, "CALLS": str(calls), "POSTGRES_USER": "postgres", **secrets}
        done = run("sh", script, env=given)
        if done.returncode or not calls.is_file():
            return [done.stdout or "psql was not called"]
        said = calls.read_text()
    for role, password in zip(("prefect", "mlflow"), secrets.values(), strict=True):
        call = (
            "psql --set ON_ERROR_STOP=1 --username postgres --dbname postgres "
            f"--set role={role} --set password={password}\n"
            "CREATE ROLE :\"role\" LOGIN PASSWORD :'password';\n"
            'GRANT :"role" TO CURRENT_USER;\n'
            'CREATE DATABASE :"role" OWNER :"role";\n'
            'REVOKE ALL ON DATABASE :"role" FROM PUBLIC;\n'
        )
        if call not in said:
            return [f"{role} is not made: {said}"]
    return []


def login_file(root: Path) -> list[str]:
    """Return what MLflow's login does not know or misses in its file."""
    path = root / "infra/images/basic_auth.ini"
    config, given = _mlflow_login(), configparser.ConfigParser()
    given.read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(path))
        try:
            read = config.read_auth_config()
        except (KeyError, ValueError) as error:
            return [f"{type(error).__name__}: {error}"]
    known = set(config.AuthConfig._fields)
    found = [f"no setting {key}" for key in given["mlflow"] if key not in known]
    found += [f"no section {name}" for name in given.sections() if name != "mlflow"]
    if read.default_permission not in ("READ", "USE", "EDIT", "MANAGE", "NO_PERMISSIONS"):
        found.append(f"no permission {read.default_permission}")
    return found


def _mlflow_login() -> ModuleType:
    """Return MLflow's module that reads the file, without the server around it."""
    place = Path(str(importlib.util.find_spec("mlflow").origin)).parent  # type: ignore[union-attr]
    spec = importlib.util.spec_from_file_location("login", place / "server/auth/config.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def image_recipe(root: Path) -> list[str]:
    """Return faults that hadolint knows, variables that nobody reads and stages that are not."""
    path = root / "infra/images/Dockerfile"
    done = run(tool("hadolint"), path)
    if done.returncode:
        return [done.stdout]
    text = path.read_text()
    assigned = "\n".join(re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE))
    given = dict(re.findall(r"([A-Z][A-Z_]+)=(\S*)", assigned))
    with pytest.MonkeyPatch.context() as patch:
        found = [f"nobody reads {name}" for name in unknown_variables(given, (), patch)]
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    named = set(re.findall(r"from=([\w-]+)", text))
    return found + [f"there is no stage {name}" for name in named - stages]


def sent_to_builder(root: Path) -> list[str]:
    """Return what the image needs and the builder is not sent, and what is sent for nothing."""
    images = root / "infra/images"
    sent = set(re.findall(r"^!(\S+)$", (images / "Dockerfile.dockerignore").read_text(), re.M))
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (images / "Dockerfile").read_text(), re.M)
    found = _different(sent, {name for line in copied for name in line.split()})
    return found + [f"no file {name}" for name in sent if not (REPOSITORY / name).exists()]


def server_packages(root: Path) -> list[str]:
    """Return packages of the servers without a version."""
    pinned = re.findall(r"^([\w.-]+)==", (REPOSITORY / "constraints.txt").read_text(), re.M)
    known = {name.lower() for name in pinned}
    names = (root / "infra/images/server.txt").read_text().splitlines()
    return [
        f"{name} has no version"
        for name in names
        if not name.startswith("#") and "==" not in name and name.lower() not in known
    ] + [
        f"{name} is not installed here"
        for name in (line.partition("==")[0] for line in names if "==" in line)
        if importlib.util.find_spec(name.lower().replace("-", "_")) is None
    ]


def job_worker_packages(root: Path) -> list[str]:
    """Return packages that Prefect does not ask for, without a version or with another one."""
    pinned = re.findall(r"^([\w.-]+)==", (REPOSITORY / "constraints.txt").read_text(), re.M)
    lines = (root / "infra/images/job-worker.txt").read_text().splitlines()
    names = [line.partition("==")[0] for line in lines if not line.startswith("#")]
    integrations = {Requirement(each).name for each in importlib.metadata.requires("prefect") or ()}
    return [
        *(f"{line} has no version" for line in lines if line[0] != "#" and "==" not in line),
        *(f"{name} has a version in constraints.txt" for name in names if name in pinned),
        *(f"nobody asks for {name}" for name in set(names) - integrations - NEEDED_BY_JOB_WORKER),
        *(f"{name} is missing" for name in NEEDED_BY_JOB_WORKER - set(names)),
    ]


def job_template(root: Path) -> list[str]:
    """Return what is wrong with the template of a cell's job, alone and where it is used."""
    if found := template_complaints(root):
        return found
    job = rendered_job(root)
    return [*worker_complaints(root), *overlay_complaints(root, "kubernetes-jobs", job)]


def never_committed(root: Path) -> list[str]:
    """Return what git would take though it holds secrets or state."""
    ignored = set((root / "infra/.gitignore").read_text().splitlines())
    secret = {".env", ".terraform/", "*.tfstate", "*.tfstate.*", "*.tfvars"}
    return [f"{name} could be committed" for name in secret - ignored]


@cache
def overlay(name: str) -> Check:
    """Return the check of an overlay, the same for all files in it."""
    return partial(overlay_complaints, overlay=name)


CHECKS: dict[str, Check] = {
    "prefect.yaml": deployments_file,
    "prefect.toml": settings_file,
    "infra/automations.yaml": automations_file,
    "infra/compose.yaml": compose_file,
    "infra/compose.example.env": compose_secrets,
    "infra/example.env": example_settings,
    "infra/.gitignore": never_committed,
    "infra/images/Dockerfile": image_recipe,
    "infra/images/Dockerfile.dockerignore": sent_to_builder,
    "infra/images/basic_auth.ini": login_file,
    "infra/images/server.txt": server_packages,
    "infra/images/job-worker.txt": job_worker_packages,
    f"infra/kubernetes/{JOB_TEMPLATE}": job_template,
    "infra/postgres/databases.sh": databases_script,
    "infra/postgres/kustomization.yaml": overlay("cpu"),
    **{
        str(path.relative_to(REPOSITORY)): overlay(
            "cpu" if path.parent.name == "base" else path.parent.name
        )
        for path in sorted((REPOSITORY / "infra/kubernetes").rglob("*.yaml"))
        if path.name != JOB_TEMPLATE
    },
}
