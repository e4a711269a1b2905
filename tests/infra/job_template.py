"""The template that a pool of Kubernetes jobs is made from, and the job that comes of it.

Kubernetes and Prefect's server take what they do not know without a word, so a misspelt placeholder
would leave its key out and a misspelt variable would do nothing.
"""

import copy
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import yaml

FILLED_BY_WORKER = {"name", "command", "labels", "env"}
"""Variables without a default: Prefect's worker knows them when it starts a run."""
RUN_COMMAND = "prefect flow-run execute"
SCHEMA_WORDS = {"type", "description", "default", "minimum", "additionalProperties"}
ONLY_FOR_WORKER = {"parallelism": 1, "completions": 1}
"""Keys of a pod that Kubernetes does not have there and Prefect's worker asks for."""


def template(root: Path) -> dict[str, Any]:
    """Return the template as it is written."""
    text = (root / "infra/kubernetes/cell-job.yaml").read_text()
    return dict(yaml.safe_load(text))


def template_complaints(root: Path) -> list[str]:
    """Return what Prefect does not know in the template, and what names nothing inside it."""
    given = template(root)
    if set(given) != {"variables", "job_configuration"}:
        return [f"there is {', '.join(given)}, expected variables and job_configuration"]
    variables, configuration = given["variables"], given["job_configuration"]
    if set(variables) != {"type", "properties"}:
        return [f"the variables have {', '.join(variables)}"]
    known = set(prefects_own()["job_configuration"])
    named, declared = placeholders(configuration), set(variables["properties"])
    return [
        *_schema_complaints(variables["properties"]),
        *(f"Prefect's worker knows no {key}" for key in set(configuration) - known),
        *(f"there is no variable {name}" for name in named - declared),
        *(f"nothing uses the variable {name}" for name in declared - named),
        *_differences_from_prefect(given),
    ]


def _schema_complaints(properties: dict[str, Any]) -> list[str]:
    """Return words that are no words of a schema, and defaults that are not what it says."""
    found = []
    for name, schema in properties.items():
        found += [f"{name}: {word} says nothing" for word in set(schema) - SCHEMA_WORDS]
        if ("default" in schema) == (name in FILLED_BY_WORKER):
            found.append(f"{name} has {'a' if 'default' in schema else 'no'} default")
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
            if "default" in schema:
                jsonschema.validate(schema["default"], schema)
        except (jsonschema.SchemaError, jsonschema.ValidationError) as error:
            found.append(f"{name}: {error.message}")
        if "description" not in schema:
            found.append(f"{name} is not described")
    return found


def _differences_from_prefect(given: dict[str, Any]) -> list[str]:
    """Return variables of Prefect's own template that have another type here."""
    own = prefects_own()["variables"]["properties"]
    return [
        f"{name} is {schema.get('type')}, for Prefect {own[name]['type']}"
        for name, schema in given["variables"]["properties"].items()
        if name in own and schema.get("type") != own[name]["type"]
    ]


@cache
def prefects_own() -> dict[str, Any]:
    """Return the template of Kubernetes pools that Prefect's server carries with it."""
    place = files("prefect.server.api") / "collections_data/views/aggregate-worker-metadata.json"
    workers = json.loads(place.read_text())["prefect-kubernetes"]
    return dict(workers["kubernetes"]["default_base_job_configuration"])


def placeholders(configuration: Any) -> set[str]:
    """Return the variables that a part of the template names."""
    from prefect.utilities.templating import find_placeholders

    return {each.name for each in find_placeholders(configuration)}


def rendered_job(root: Path, **values: Any) -> dict[str, Any]:
    """Return the job of a run as Kubernetes keeps it, made as Prefect's worker makes it.

    What the worker adds by itself, its own settings and labels, is not here.
    """
    from prefect.utilities.templating import apply_values

    given = template(root)
    properties = given["variables"]["properties"]
    defaults = {
        name: schema["default"] for name, schema in properties.items() if "default" in schema
    }
    filled = {"name": "darcy-lsm-seed-0", "command": RUN_COMMAND.split(), "labels": {}, "env": {}}
    configuration = apply_values(given["job_configuration"], {**filled, **defaults, **values})
    assert isinstance(configuration, dict)
    job: dict[str, Any] = copy.deepcopy(configuration["job_manifest"])
    spec = job["spec"]["template"]["spec"]
    for key, value in ONLY_FOR_WORKER.items():
        if spec.get(key) == value:
            del spec[key]
    return job


def worker_complaints(root: Path) -> list[str]:
    """Return what Prefect's worker would refuse in the job."""
    spec = template(root)["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    asked = {**ONLY_FOR_WORKER, "restartPolicy": "Never"}
    found = [f"{key} is not {value}" for key, value in asked.items() if spec.get(key) != value]
    if [each.get("name") for each in spec.get("containers", [])] != ["prefect-job"]:
        found.append("there must be one container, prefect-job")
    return found
