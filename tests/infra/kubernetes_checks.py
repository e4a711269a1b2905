"""What is wrong with the manifests of Kubernetes: unknown keys, and names that name nothing."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.known_names import complaint, unknown_variables
from tests.infra.manifests import run, tool

VERSION = "1.32"
RESOURCES = {"batch": {"jobs"}, "": {"pods", "pods/log", "events"}}
VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
"""What a role of ours may be about; no schema knows these words."""
POD_SECURITY = r"pod-security\.kubernetes\.io/(enforce|warn|audit)(-version)?"


def overlay_complaints(root: Path, overlay: str, *more: dict[str, Any]) -> list[str]:
    """Return what is wrong with an overlay as kubectl would apply it, with more objects in it."""
    done = run(tool("kubectl"), "kustomize", root / "infra/kubernetes/overlays" / overlay)
    if done.returncode:
        return [done.stdout]
    # Keys in the order in which kustomize writes them, too.
    ordered = [yaml.safe_load(yaml.safe_dump(each)) for each in more]
    objects = [*yaml.safe_load_all(done.stdout), *ordered]
    if found := [text for each in objects if (text := _schema_complaint(yaml.safe_dump(each)))]:
        return found
    secrets = re.findall(r"^([A-Z_]+)=", (root / "infra/compose.example.env").read_text(), re.M)
    return [
        *_selectors(objects),
        *_references(objects, set(secrets)),
        *_roles(objects),
        *_variables(objects),
        *_namespaces(objects),
    ]


@cache
def _schema_complaint(document: str) -> str | None:
    """Return what the schema says against one object; most are the same in many overlays."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    try:
        kubernetes_validate.validate(yaml.safe_load(document), VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    except kubernetes_validate.SchemaNotFoundError as error:
        return str(error.message)
    return None


def _pods(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for each in objects:
        if "template" in each.get("spec", {}):
            yield each, each["spec"]["template"]


def _names(objects: list[dict[str, Any]], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in objects if each["kind"] == kind}


def _selectors(objects: list[dict[str, Any]]) -> list[str]:
    """Return the labels by which somebody is looked for and that no pod has."""
    worn = {
        pair for _, template in _pods(objects) for pair in template["metadata"]["labels"].items()
    }
    found = []
    for each in objects:
        for pair in _looked_for(each):
            if pair not in worn:
                found.append(f"{each['metadata']['name']} looks for {pair}, which no pod has")
    return found


def _looked_for(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    spec = document.get("spec", {})
    if document["kind"] == "Service":
        yield from spec["selector"].items()
    elif document["kind"] == "NetworkPolicy":
        yield from _labels(spec["podSelector"])
        for rule in spec.get("ingress", []):
            for source in rule.get("from", []):
                yield from _labels(source["podSelector"])
    elif "selector" in spec:
        yield from _labels(spec["selector"])


def _labels(selector: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from selector.get("matchLabels", {}).items()
    for each in selector.get("matchExpressions", []):
        yield from ((each["key"], value) for value in each["values"])


def _references(objects: list[dict[str, Any]], secrets: set[str]) -> list[str]:
    """Return names of accounts, volumes, maps, ports and secrets that nothing has."""
    accounts, maps = _names(objects, "ServiceAccount"), _names(objects, "ConfigMap")
    claims = _names(objects, "PersistentVolumeClaim")
    ports: set[Any] = set()
    missing: list[set[str]] = []
    used: set[Any] = set()
    for each, template in _pods(objects):
        spec = template["spec"]
        made = {one["metadata"]["name"] for one in each["spec"].get("volumeClaimTemplates", [])}
        volumes = {volume["name"] for volume in spec.get("volumes", [])} | made
        text = str(spec)
        mounted = set()
        for container in spec["containers"]:
            mounted |= {mount["name"] for mount in container.get("volumeMounts", [])}
            for port in container.get("ports", []):
                ports |= {port["name"], port["containerPort"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                used |= set(re.findall(r"'port': '(\w+)'", str(container.get(probe))))
        missing += [
            {spec["serviceAccountName"]} - accounts,
            mounted ^ volumes,
            set(re.findall(r"'configMap(?:Ref)?': \{[^}]*'name': '([\w-]+)'", text)) - maps,
            set(re.findall(r"'claimName': '([\w-]+)'", text)) - claims,
            set(re.findall(r"'secretKeyRef': \{'key': '(\w+)'", text)) - secrets,
            set(re.findall(r"'key': '\w+', 'name': '([\w-]+)'", text)) - {"lsm-secrets"},
        ]
    for each in objects:
        if each["kind"] == "Service":
            used |= {port["targetPort"] for port in each["spec"]["ports"]}
        if each["kind"] == "NetworkPolicy":
            rules = each["spec"].get("ingress", [])
            used |= {port["port"] for rule in rules for port in rule.get("ports", [])}
    return [f"nothing is called {name}" for names in [*missing, used - ports] for name in names]


def _roles(objects: list[dict[str, Any]]) -> list[str]:
    """Return what roles allow that Kubernetes does not know, and bindings of nobody."""
    roles, accounts = _names(objects, "Role"), _names(objects, "ServiceAccount")
    found = []
    for each in objects:
        for rule in each.get("rules", []) if each["kind"] == "Role" else []:
            known = {name for group in rule["apiGroups"] for name in RESOURCES.get(group, ())}
            found += [f"no resource {name}" for name in set(rule["resources"]) - known]
            found += [f"no verb {verb}" for verb in set(rule["verbs"]) - VERBS]
        if each["kind"] == "RoleBinding":
            bound = {subject["name"] for subject in each["subjects"]}
            found += [f"no role {name}" for name in {each["roleRef"]["name"]} - roles]
            found += [f"no account {name}" for name in bound - accounts]
    return found


def _variables(objects: list[dict[str, Any]]) -> list[str]:
    """Return variables that nobody reads and commands that no program has."""
    maps = {
        each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"
    }
    found = []
    for _, template in _pods(objects):
        for container in template["spec"]["containers"]:
            variables = {each["name"]: each.get("value", "1") for each in container.get("env", [])}
            for source in container.get("envFrom", []):
                variables |= maps.get(source["configMapRef"]["name"], {})
            # Our images have no entry point: what is said instead of a command is one.
            command = tuple(container.get("command") or container.get("args", ()))
            found += _process(container["image"], command, tuple(variables.items()))
    return found


@cache
def _process(
    image: str, command: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> list[str]:
    """Return what one container is told that nobody understands; most are in every overlay."""
    with pytest.MonkeyPatch.context() as patch:
        strange = unknown_variables(dict(variables), command, patch)
    unset = set(re.findall(r"\$\((\w+)\)", " ".join(command))) - {name for name, _ in variables}
    said = complaint(command) if image.startswith("lsm-") else None
    return [
        *(f"nobody reads {name}" for name in strange),
        *(f"nothing sets {name}" for name in unset),
        *([said] if said else []),
    ]


def _namespaces(objects: list[dict[str, Any]]) -> list[str]:
    """Return labels of namespaces that Kubernetes would not heed."""
    labels = [
        key
        for each in objects
        if each["kind"] == "Namespace"
        for key in each["metadata"]["labels"]
        if key not in ("app.kubernetes.io/part-of", "kubernetes.io/metadata.name")
    ]
    return [f"no label {key}" for key in labels if not re.fullmatch(POD_SECURITY, key)]
