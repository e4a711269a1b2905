import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.job_template import rendered_job
from tests.infra.manifests import (
    INFRA,
    OVERLAYS,
    REPOSITORY,
    kubernetes_documents,
    pod_specs,
    run,
    tool,
)

VERSION = "1.32"


def build(folder: Path) -> str:
    done = run(tool("kubectl"), "kustomize", folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built() -> Callable[[str], list[dict[str, Any]]]:
    """Return an overlay as the objects that would be applied."""
    kept: dict[str, list[dict[str, Any]]] = {}

    def objects(overlay: str) -> list[dict[str, Any]]:
        if overlay not in kept:
            text = build(INFRA / "kubernetes" / "overlays" / overlay)
            kept[overlay] = list(yaml.safe_load_all(text))
        return kept[overlay]

    return objects


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(
        each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def container(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return named(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]


def strictly(path: Path) -> tuple[int, str]:
    done = run(tool("kubernetes-validate"), "--strict", "-k", VERSION, path)
    return done.returncode, done.stdout


def test_every_overlay_follows_the_schema(built: Any, tmp_path: Path) -> None:
    # Overlays share most of their objects, and a look at each takes a tenth of a second.
    objects = {yaml.safe_dump(each) for overlay in OVERLAYS for each in built(overlay)}
    path = tmp_path / "built.yaml"
    path.write_text("---\n".join(sorted(objects)))
    code, said = strictly(path)
    assert code == 0, said
    assert said.count("passed") == len(objects) > 30


def test_what_is_written_follows_the_schema_even_without_kustomize(tmp_path: Path) -> None:
    whole = [each for each in kubernetes_documents() if "selector" in each.get("spec", {})]
    assert len(whole) > 8
    path = tmp_path / "written.yaml"
    path.write_text(yaml.safe_dump_all(whole))
    code, said = strictly(path)
    assert code == 0, said


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("readOnlyRootFilesystem", "readonlyRootFilesystem"), ("replicas: 1", "replicas: one")],
)
def test_a_planted_typo_is_caught(right: str, wrong: str, tmp_path: Path) -> None:
    text = (INFRA / "kubernetes" / "base" / "prefect-server.yaml").read_text()
    assert right in text
    path = tmp_path / "prefect-server.yaml"
    path.write_text(text.replace(right, wrong))
    code, said = strictly(path)
    assert code != 0
    assert "prefect-server.yaml" in said


def test_a_patch_for_something_that_is_not_there_is_caught(tmp_path: Path) -> None:
    shutil.copytree(INFRA, tmp_path / "infra", ignore=shutil.ignore_patterns(".*"))
    patch = tmp_path / "infra/kubernetes/components/gpu/cell-worker.yaml"
    patch.write_text(
        patch.read_text().replace("metadata: {name: cell-worker}", "metadata: {name: cell-wroker}")
    )
    done = run(tool("kubectl"), "kustomize", tmp_path / "infra/kubernetes/overlays/gpu")
    assert done.returncode != 0
    assert "cell-wroker" in done.stdout


def test_everything_lies_in_one_namespace(built: Any) -> None:
    for overlay in OVERLAYS:
        for each in built(overlay):
            if each["kind"] != "Namespace":
                assert each["metadata"].get("namespace") == "lsm", each["metadata"]["name"]


def test_every_pod_asks_for_the_least() -> None:
    names = []
    cell = rendered_job(REPOSITORY)["spec"]["template"]["spec"]
    for name, spec in [*pod_specs(), ("cell", cell)]:
        names.append(name)
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is (name == "job-worker"), name
        for each in spec["containers"]:
            own = each["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert set(each["resources"]) == {"requests", "limits"}, name
            assert ":" in each["image"], f"{name} has no pinned image"
    assert sorted(names) == [
        "cell",
        "cell-worker",
        "control-worker",
        "dask-scheduler",
        "dask-worker",
        "deploy",
        "job-worker",
        "mlflow",
        "postgres",
        "prefect-server",
    ]


def test_accounts_exist_and_only_who_makes_jobs_has_a_role() -> None:
    documents = kubernetes_documents()
    accounts = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    assert {spec["serviceAccountName"] for _, spec in pod_specs()} == accounts
    role, binding = (each for each in documents if each["kind"].endswith(("Role", "RoleBinding")))
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    allowed = {
        resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]
    }
    assert allowed == {
        "jobs": {"get", "list", "watch", "create", "delete"},
        "pods": {"get", "list", "watch"},
        "pods/log": {"get"},
        "events": {"create"},
    }
    bound = {"kind": "ServiceAccount", "name": "job-worker", "namespace": "lsm"}
    assert binding["subjects"] == [bound]
    users = [name for name, spec in pod_specs() if spec["serviceAccountName"] == "job-worker"]
    assert users == ["job-worker"]


def test_whoever_serves_is_probed_and_only_reached_by_those_listed() -> None:
    served = {
        each["spec"]["selector"]["app.kubernetes.io/name"]
        for each in kubernetes_documents()
        if each["kind"] == "Service"
    }
    specs = dict(pod_specs())
    allowed = str([each for each in kubernetes_documents() if each["kind"] == "NetworkPolicy"])
    for name in served:
        assert {"readinessProbe", "livenessProbe"} <= set(specs[name]["containers"][0]), name
        assert f"'{name}'" in allowed, name


def test_a_worker_that_cannot_reach_the_server_is_not_ready_and_not_killed(built: Any) -> None:
    for overlay in OVERLAYS:
        of_cells = "job-worker" if overlay == "kubernetes-jobs" else "cell-worker"
        for name in ("control-worker", of_cells):
            worker = container(built(overlay), name)
            assert worker["readinessProbe"]["httpGet"] == {"path": "/health", "port": "health"}
            alive = worker["livenessProbe"]
            assert alive["tcpSocket"] == {"port": "health"}
            assert not {"httpGet", "exec", "grpc"} & set(alive)


def test_the_gpu_overlay_puts_one_gpu_and_its_image_on_a_node_that_has_one(built: Any) -> None:
    worker = container(built("gpu"), "cell-worker")
    assert worker["image"].startswith("lsm-cuda:")
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert worker["resources"]["requests"]["nvidia.com/gpu"] == "1"
    assert {"name": "LSM_DEVICE", "value": "cuda"} in worker["env"]
    assert len(worker["env"]) == 1 + len(container(built("cpu"), "cell-worker")["env"])
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in worker["volumeMounts"]
    spec = named(built("gpu"), "Deployment", "cell-worker")["spec"]
    # All GPUs may be taken: the old worker has to go before the new one can come.
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert "nodeSelector" not in spec["template"]["spec"]
    assert "nvidia.com/gpu" not in str(built("cpu"))
    assert container(built("gpu"), "control-worker") == container(built("cpu"), "control-worker")


def test_the_s3_overlay_has_no_volume_for_data(built: Any) -> None:
    def claims(overlay: str) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in built(overlay)
            if each["kind"] == "PersistentVolumeClaim"
        }

    assert claims("cpu") == {"store", "artifacts"}
    assert claims("s3") == set()
    assert "claimName" not in str(built("s3"))
    variables = [each["data"] for each in built("s3") if each["kind"] == "ConfigMap"]
    assert {"LSM_STORE", "PREFECT_API_URL"} <= {key for each in variables for key in each}
    assert any(each.get("LSM_STORE", "").startswith("s3://") for each in variables)


def test_the_dask_overlay_tells_workers_where_the_scheduler_is(built: Any) -> None:
    objects = built("dask")
    service = named(objects, "Service", "dask-scheduler")
    address = f"tcp://dask-scheduler:{service['spec']['ports'][0]['port']}"
    client = next(each["data"] for each in objects if "LSM_DASK" in each.get("data", {}))
    assert client["LSM_DASK"] == address
    assert address in container(objects, "dask-worker")["command"]


def test_secrets_are_named_as_in_the_example_and_never_written() -> None:
    example = (INFRA / "compose.example.env").read_text()
    for document in kubernetes_documents():
        assert document["kind"] != "Secret"
    for path in (INFRA / "kubernetes").rglob("*.yaml"):
        for line in path.read_text().splitlines():
            if "secretKeyRef" in line:
                reference = yaml.safe_load(line.strip())["valueFrom"]["secretKeyRef"]
                assert reference["name"] == "lsm-secrets"
                assert f"\n{reference['key']}=\n" in example, reference["key"]
