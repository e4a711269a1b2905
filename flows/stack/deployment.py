"""What the Prefect server is to know of the flows: the pool, the deployments, the automations.

What an operator has changed on the server is kept: a pool that is paused or limited, a deployment
or a schedule that is paused (prefect.yaml does not say whether one is active), an automation that
is off. A schedule is off until somebody switches it on.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.errors import BadInput, ServiceFailed
from flows.settings import CELL_POOL, CONTROL_POOL, RETRAINING_QUEUE, URGENT_QUEUE, Settings
from storage.errors import translated

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.events.schemas.automations import AutomationCore

DEPLOYMENTS = Path("prefect.yaml")
AUTOMATIONS = Path("infra/automations.yaml")
JOB_TEMPLATES = Path("infra")
"""What is declared, in the folder that is worked in."""
PAGE = 200
"""Deployments that Prefect's server gives in one answer at most."""


def prefect_client(api: str, environment: Mapping[str, str]) -> "SyncPrefectClient":
    """Return a client of the server at an address, with the password of an environment."""
    from prefect.client.orchestration import SyncPrefectClient

    return SyncPrefectClient(api, auth_string=environment.get("PREFECT_API_AUTH_STRING"))


def deploy(settings: Settings, environment: Mapping[str, str]) -> None:
    """Make the pools, declare deployments and automations; what is there is brought up to date.

    The server is the one at PREFECT_API_URL, here or elsewhere.
    """
    import httpx

    environment = {**environment, "PREFECT_API_URL": settings.prefect_api}

    def unreachable(error: Exception) -> Exception:
        return ServiceFailed(
            f"the server at {settings.prefect_api} cannot be told of the flows: {error}"
        )

    with (
        translated(httpx.HTTPError, OSError, into=unreachable),
        prefect_client(settings.prefect_api, environment) as client,
    ):
        _make_pools(client, settings.cell_pool_type)
        known = client.read_deployments(limit=PAGE)
        scheduled = {schedule.id for each in known for schedule in each.schedules}
        try:
            _declare_deployments(environment)
        finally:
            for deployment in known:
                if deployment.paused:  # declaring one switches it on
                    client.pause_deployment(deployment.id)
        for deployment in client.read_deployments(limit=PAGE):
            for schedule in deployment.schedules:
                if schedule.id not in scheduled:
                    client.update_deployment_schedule(deployment.id, schedule.id, active=False)
        declare_automations(client)


def _make_pools(client: "SyncPrefectClient", cells: str) -> None:
    """Make the pools and their queues; those that are there stay as they are."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    for name, kind in ((CONTROL_POOL, "process"), (CELL_POOL, cells)):
        # Never over one that is there: its pause and its limit would be gone.
        with suppress(ObjectAlreadyExists):
            made = WorkPoolCreate(name=name, type=kind, base_job_template=_job_template(kind))
            client.create_work_pool(made)
    with suppress(ObjectAlreadyExists):
        client.create_work_queue(URGENT_QUEUE, priority=1, work_pool_name=CELL_POOL)
    with suppress(ObjectAlreadyExists):
        client.create_work_queue(RETRAINING_QUEUE, concurrency_limit=1, work_pool_name=CONTROL_POOL)


def _job_template(kind: str) -> dict[str, Any]:
    """Return what a job of a pool is made of: ours if infra/ has one, else Prefect's own."""
    import yaml
    from prefect.workers.base import BaseWorker

    ours = JOB_TEMPLATES / kind / "cell-job.yaml"
    if ours.is_file():
        return dict(yaml.safe_load(ours.read_text(encoding="utf-8")))
    worker = BaseWorker.get_worker_class_from_type(kind)
    if worker is None:
        raise BadInput(f"LSM_CELL_POOL_TYPE is {kind!r}, but no worker of that type is installed")
    return worker.get_default_base_job_template()


def _declare_deployments(environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise ServiceFailed(f"`prefect --no-prompt deploy --all` failed: {said[-800:]}")


def declare_automations(client: "SyncPrefectClient", declared: Path = AUTOMATIONS) -> None:
    """Make or bring up to date the automations of a file; those of other names are left alone.

    One that is there stays switched on or off, as an operator left it.
    """
    for wanted in declared_automations(declared, lambda name: _block(client, name)):
        known = client.read_automations_by_name(wanted.name)
        if not known:
            client.create_automation(wanted)
        # One that is written again forgets the events it has seen: a run that fell silent before
        # would never be missed.
        elif not _holds(known[0], wanted):
            kept = wanted.model_copy(update={"enabled": known[0].enabled})
            client.update_automation(known[0].id, kept)


def _holds(there: "AutomationCore", wanted: "AutomationCore") -> bool:
    """Return whether an automation is as declared, but for whether it is switched on."""
    fields = set(type(wanted).model_fields) - {"enabled", "owner_resource"}
    return all(getattr(there, name) == getattr(wanted, name) for name in fields)


def declared_automations(
    declared: Path = AUTOMATIONS, block: Callable[[str], UUID] = lambda _: UUID(int=0)
) -> list["AutomationCore"]:
    """Return the automations of a file; `block` gives the id of the block of a name."""
    import yaml
    from prefect.events.schemas.automations import AutomationCore

    found = yaml.safe_load(declared.read_text(encoding="utf-8"))["automations"]
    for action in (action for each in found for action in each["actions"]):
        if "block_document" in action:
            action["block_document_id"] = block(action.pop("block_document"))
    return [AutomationCore.model_validate(each) for each in found]


def _block(client: "SyncPrefectClient", name: str) -> UUID:
    """Return the notification block of a name; one is made that people have to complete.

    One that is there may be of any kind: Slack, mail, another webhook.
    """
    from prefect.client.schemas.actions import BlockDocumentCreate

    found = [each for each in client.read_block_documents(limit=None) if each.name == name]
    if found:
        return found[0].id
    kind = client.read_block_type_by_slug("custom-webhook")
    (schema, *_) = [each for each in client.read_block_schemas() if each.block_type_id == kind.id]
    message = {"text": "{{subject}}\n{{body}}"}
    made = BlockDocumentCreate(
        name=name,
        data={"name": name, "url": "http://127.0.0.1:9/", "method": "POST", "json_data": message},
        block_schema_id=schema.id,
        block_type_id=kind.id,
    )
    return client.create_block_document(made).id
