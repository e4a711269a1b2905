"""What is wrong with prefect.yaml, prefect.toml and automations.yaml, asked of Prefect's models.

Prefect itself ignores most keys that it does not know, so a misspelt one would silently do nothing.
"""

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import yaml
from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from flows.settings import CELL_POOL, CONTROL_POOL, RETRAINING_QUEUE

ANCHORS = "definitions"
"""The one key of prefect.yaml that is ours: what anchors name."""
LABELS = {
    "prefect.resource.id",
    "prefect.resource.role",
    "prefect.run-count",
    "prefect.state-message",
}
CELL = "flows.cell:cell"
"""The one flow that trains on the pool of cells; the others submit, wait and report."""
FAILED_WITH = "Flow run encountered an exception: "
STATUS_ERROR = "PrefectHTTPStatusError"


def deployments_file(root: Path) -> list[str]:
    """Return what is wrong with prefect.yaml."""
    from prefect.cli.deploy._models import PrefectYamlModel

    given = yaml.safe_load((root / "prefect.yaml").read_text())
    given.pop(ANCHORS, None)
    try:
        parsed = PrefectYamlModel.model_validate(given)
    except ValidationError as error:
        return [str(error)]
    found = _unknown_keys(parsed, given)
    for each in given.get("deployments", []):
        found += [f"{each.get('name')}: {text}" for text in _deployment(each)]
    return found


def _deployment(given: dict[str, Any]) -> list[str]:
    if missing := {"name", "entrypoint", "work_pool"} - set(given):
        return [f"there is no {', '.join(sorted(missing))}"]
    pool = CELL_POOL if given["entrypoint"] == CELL else CONTROL_POOL
    found = [] if given["work_pool"].get("name") == pool else ["the pool is another"]
    if given["work_pool"].get("work_queue_name", RETRAINING_QUEUE) != RETRAINING_QUEUE:
        found.append("nobody makes that queue")
    if "concurrency_limit" in given:
        found.append(
            "a run that comes back may lose the lease of a deployment's limit; limit a queue"
        )
    module, _, name = given["entrypoint"].partition(":")
    try:
        flow = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        return [*found, f"{given['entrypoint']}: {error}"]
    taken = set(flow.parameters.properties)
    sets = [given, *given.get("schedules", []), *given.get("triggers", [])]
    for each in sets:
        found += [f"no parameter {key}" for key in set(each.get("parameters") or ()) - taken]
    try:
        if given["entrypoint"] != CELL:  # which gets its parameters from whoever submits it
            flow.validate_parameters(given.get("parameters", {}))
    except Exception as error:
        found.append(str(error))
    for trigger in given.get("triggers", []):
        found += _trigger(trigger)
    return found


def _trigger(given: dict[str, Any]) -> list[str]:
    from prefect.events.schemas.deployment_triggers import DeploymentTriggerTypes

    from flows.engine.tasks import DATASET_UPDATED

    try:
        parsed = TypeAdapter(DeploymentTriggerTypes).validate_python(given)
    except ValidationError as error:
        return [str(error)]
    strange = {*given.get("expect", ()), *given.get("after", ())} - {DATASET_UPDATED}
    return [
        *_unknown_keys(parsed, given),
        *_unknown_labels(given),
        *(f"nobody emits {event}" for event in strange),
    ]


def automations_file(root: Path) -> list[str]:
    """Return what is wrong with automations.yaml."""
    from prefect.events.schemas.automations import AutomationCore

    from flows.retrain import CHANGED, JUDGED

    given = yaml.safe_load((root / "infra" / "automations.yaml").read_text())
    if list(given) != ["automations"]:
        return [f"there is {', '.join(given)}, expected automations"]
    events = {f"prefect.flow-run.{name}" for name in ("*", "heartbeat", *_names_of_states())}
    events |= {JUDGED, CHANGED}
    found = []
    for each in given["automations"]:
        for action in each["actions"]:
            if action.pop("block_document", ""):  # its number is the server's
                action["block_document_id"] = UUID(int=0)
        try:
            parsed = AutomationCore.model_validate(each)
        except ValidationError as error:
            found.append(str(error))
            continue
        trigger = each["trigger"]
        named = {*trigger.get("expect", ()), *trigger.get("after", ())}
        found += _unknown_keys(parsed, each)
        found += _unknown_labels(trigger)
        found += [f"nobody emits {event}" for event in named - events]
        found += _unknown_errors(trigger)
        found += _not_begun_anew(trigger)
    return found


def _not_begun_anew(trigger: dict[str, Any]) -> list[str]:
    """Return events that are waited after once only: Prefect begins anew by what is expected."""
    if trigger["posture"] != "Proactive":
        return []
    once = set(trigger.get("after", ())) - set(trigger["expect"])
    return [f"a second {event} within {trigger['within']} s is not looked at" for event in once]


def _names_of_states() -> set[str]:
    """Return the names that Prefect and retrainings give to states, by which events are named."""
    from prefect import states
    from prefect.client.schemas.objects import StateType

    from flows.steps.models.judgement import RetrainingState

    types = {state.value.capitalize() for state in StateType}
    # Each of the others is made by a function of its own name.
    others = {"Suspended", "AwaitingRetry", "AwaitingConcurrencySlot"}
    return types | (others & set(vars(states))) | set(get_args(RetrainingState))


def _unknown_errors(trigger: dict[str, Any]) -> list[str]:
    """Return errors that a trigger waits for and that are not those of a lost server or store."""
    import httpx

    from flows.engine.server_loss import OF_THE_SERVER
    from storage.errors import StoreInterrupted

    known = {each.__name__ for each in (*OF_THE_SERVER, StoreInterrupted)}
    known |= {name for name, each in vars(httpx).items() if _is_transport_error(each)}
    said = trigger.get("match", {}).get("prefect.state-message", [])
    found = [f"no run ends with {text}" for text in said if not text.startswith(FAILED_WITH)]
    named = {text.removeprefix(FAILED_WITH).rstrip("*").split(":")[0] for text in said}
    return found + [f"no error is called {name}" for name in named - known - {STATUS_ERROR}]


def _is_transport_error(thing: Any) -> bool:
    import httpx

    return isinstance(thing, type) and issubclass(thing, httpx.TransportError)


def _unknown_labels(trigger: dict[str, Any]) -> list[str]:
    used = {*trigger.get("match", ()), *trigger.get("match_related", ())}
    used |= set(trigger.get("for_each", ()))
    return [f"no event has the label {label}" for label in used - LABELS]


def _unknown_keys(parsed: Any, given: Any) -> list[str]:
    """Return the keys that a model was given and does not have, at any depth."""
    if isinstance(parsed, list) and isinstance(given, list):
        pairs = zip(parsed, given, strict=True)
        return [text for one, other in pairs for text in _unknown_keys(one, other)]
    if not isinstance(parsed, BaseModel) or isinstance(parsed, RootModel):
        return []
    found = []
    for key, value in given.items():
        if key in type(parsed).model_fields:
            found += _unknown_keys(getattr(parsed, key), value)
        else:
            found.append(f"{type(parsed).__name__} has no {key}")
    return found


def settings_file(root: Path) -> list[str]:
    """Return what is wrong with prefect.toml."""
    from prefect.settings import Settings

    return _settings(Settings, tomllib.loads((root / "prefect.toml").read_text()))


def _settings(model: type[BaseModel], given: dict[str, Any]) -> list[str]:
    found = []
    for key, value in given.items():
        if key not in model.model_fields:
            found.append(f"{model.__name__} has no {key}")
            continue
        expected = model.model_fields[key].annotation
        if isinstance(value, dict) and isinstance(expected, type):
            found += _settings(expected, value)
            continue
        try:
            TypeAdapter(expected).validate_python(value)
        except ValidationError as error:
            found.append(str(error))
    return found
