"""A cell as a job of Kubernetes: what the template makes, and what Prefect's worker makes of it."""

from typing import Any
from uuid import uuid4

import pytest
import yaml

from flows.settings import CELL_POOL
from flows.stack.deployment import _job_template
from tests.infra.file_checks import job_template
from tests.infra.job_template import (
    FILLED_BY_WORKER,
    ONLY_FOR_WORKER,
    placeholders,
    rendered_job,
    template,
)
from tests.infra.known_names import JOB_WORKER, JOB_WORKER_SETTINGS
from tests.infra.manifests import INFRA, REPOSITORY, pod_specs

WORKER = dict(pod_specs())["cell-worker"]


def pod(**values: Any) -> dict[str, Any]:
    return dict(rendered_job(REPOSITORY, **values)["spec"]["template"]["spec"])


def test_nothing_is_wrong_with_it() -> None:
    assert job_template(REPOSITORY) == []


def test_a_pool_of_kubernetes_jobs_is_made_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert _job_template("kubernetes") == template(REPOSITORY)


def test_every_variable_is_used_and_every_placeholder_declared() -> None:
    given = template(REPOSITORY)
    declared = given["variables"]["properties"]
    assert placeholders(given["job_configuration"]) == set(declared)
    asked = {"gpus", "device", "memory", "cpu", "node_selector", "image", "namespace"}
    assert asked | {"service_account_name", "state"} | FILLED_BY_WORKER == set(declared)


def test_kubernetes_tries_nothing_again_so_that_prefect_does() -> None:
    job = rendered_job(REPOSITORY)["spec"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["ttlSecondsAfterFinished"] > 0


def test_a_cell_gets_what_its_run_asks_for() -> None:
    nodes = {"kubernetes.io/arch": "arm64"}
    made = pod(gpus=2, memory="64Gi", cpu="8", node_selector=nodes, image="registry/cuda:1")
    (container,) = made["containers"]
    wanted = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 2}
    assert container["resources"] == {"requests": wanted, "limits": wanted}
    assert container["image"] == "registry/cuda:1"
    assert made["nodeSelector"] == nodes
    assert rendered_job(REPOSITORY, namespace="other")["metadata"]["namespace"] == "other"


def _name(variable: dict[str, Any]) -> str:
    return str(variable["name"])


def test_a_cell_finds_store_and_secrets_where_cell_workers_do() -> None:
    made, (container,), (of_worker,) = pod(), pod()["containers"], WORKER["containers"]
    assert made["serviceAccountName"] == WORKER["serviceAccountName"]
    assert made["securityContext"] == WORKER["securityContext"]
    assert made["volumes"] == WORKER["volumes"]
    for key in ("envFrom", "volumeMounts", "securityContext"):
        assert container[key] == of_worker[key], key
    # The worker itself adds the password of Prefect, by the name of its secret.
    passed_on = [each for each in of_worker["env"] if each["name"] != "PREFECT_API_AUTH_STRING"]
    expected = [*passed_on, {"name": "LSM_DEVICE", "value": "cuda"}]
    assert sorted(container["env"], key=_name) == sorted(expected, key=_name)
    (job_worker,) = dict(pod_specs())["job-worker"]["containers"]
    given = {each["name"]: each.get("value") for each in job_worker["env"]}
    secret = "WORKER_API_AUTH_STRING_SECRET_"
    assert given[f"{JOB_WORKER}{secret}NAME"] == "lsm-secrets"
    assert given[f"{JOB_WORKER}{secret}KEY"] == "PREFECT_AUTH_STRING"
    assert given[f"{JOB_WORKER}OBSERVER_NAMESPACES"] == "lsm"
    assert f"--pool={CELL_POOL}" in job_worker["command"]


def test_with_a_bucket_only_scratch_stays_on_the_node() -> None:
    # As its description tells an operator, and as the component s3 does for workers.
    described = template(REPOSITORY)["variables"]["properties"]["state"]["description"]
    scratch = yaml.safe_load(described.partition("with a bucket ")[2].rstrip("."))
    assert pod(state=scratch)["volumes"][0] == scratch
    patch = yaml.safe_load((INFRA / "kubernetes/components/s3/worker.yaml").read_text())
    (volume,) = patch["spec"]["template"]["spec"]["volumes"]
    assert {**scratch, "persistentVolumeClaim": None} == volume


def test_its_image_is_that_of_gpu_workers() -> None:
    patch = (INFRA / "kubernetes/components/gpu/cell-worker.yaml").read_text()
    spec = yaml.safe_load(patch)["spec"]["template"]["spec"]
    made = pod()
    assert made["containers"][0]["image"] == spec["containers"][0]["image"]
    # The request for a GPU finds the nodes; who sets which label differs.
    assert "nodeSelector" not in spec
    assert made["nodeSelector"] == {}
    assert made["tolerations"] == spec["tolerations"]
    assert {"name": "LSM_DEVICE", "value": "cuda"} in spec["containers"][0]["env"]
    assert pod(device="cpu", gpus=0)["containers"][0]["env"] != made["containers"][0]["env"]


@pytest.mark.filterwarnings("ignore")  # of packages that only images have
def test_the_worker_takes_it_and_lets_an_evicted_cell_come_back() -> None:
    kubernetes = pytest.importorskip("prefect_kubernetes.worker")
    from prefect.client.schemas.objects import Flow, FlowRun
    from prefect.utilities.templating import apply_values

    kind = kubernetes.KubernetesWorkerJobConfiguration
    given = template(REPOSITORY)
    values = kind._get_base_config_defaults(given["variables"]["properties"])
    made = kind(**apply_values(given["job_configuration"], {**values, "env": {"LSM_MEMORY": "1"}}))
    run = FlowRun(id=uuid4(), name="darcy-lsm-seed-0", flow_id=uuid4())
    made.prepare_for_flow_run(run, flow=Flow(id=run.flow_id, name="cell"))
    spec = made.job_manifest["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "reschedule"
    assert variables["LSM_MEMORY"] == "1"
    assert {"MLFLOW_TRACKING_PASSWORD", "LSM_WORKERS"} <= set(variables)
    assert container["args"] == ["prefect", "flow-run", "execute"]
    assert made.job_manifest["spec"]["template"]["metadata"]["labels"]["lsm/client"] == "true"
    for key in ONLY_FOR_WORKER:
        without = {name: value for name, value in spec.items() if name != key}
        job = {**made.job_manifest, "spec": {"template": {"spec": without}}}
        with pytest.raises(ValueError, match=key):
            kind(job_manifest=job)


def test_the_settings_of_the_job_worker_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = pytest.importorskip("prefect_kubernetes.settings")
    for name in JOB_WORKER_SETTINGS:
        monkeypatch.setenv(name, name[-4:])
    read = settings.KubernetesSettings()
    assert read.worker.api_auth_string_secret_name == "NAME"
    assert read.worker.api_auth_string_secret_key == "_KEY"
    assert read.observer.namespaces == {"ACES"}
