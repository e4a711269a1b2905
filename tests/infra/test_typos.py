"""Every declaration has a check that runs offline, and a misspelt word in any of them is caught."""

import shutil
from pathlib import Path

import pytest

from tests.infra.file_checks import CHECKS
from tests.infra.manifests import INFRA, REPOSITORY

KUBERNETES = "infra/kubernetes"
TYPOS = [
    ("prefect.yaml", "deployments:", "deployment:"),
    ("prefect.yaml", "entrypoint: flows.prepare:prepare", "entrypont: flows.prepare:prepare"),
    ("prefect.yaml", "flows.retrain:retrain", "flows.retrain:retran"),
    ("prefect.yaml", "flows.train:train", "flows.trian:train"),
    ("prefect.yaml", "n_new: 64", "n_news: 64"),
    ("prefect.yaml", "preset: quick", "preset: quik"),
    ("prefect.yaml", "timezone: UTC", "timezon: UTC"),
    ("prefect.yaml", "work_queue_name", "work_queu_name"),
    ("prefect.yaml", "work_queue_name: retrainings", "work_queue_name: retraining"),
    ("prefect.yaml", "    tags: [cell]", "    concurrency_limit: 1\n    tags: [cell]"),
    ("prefect.yaml", "        match:", "        mach:"),
    ("prefect.yaml", "[lsm.dataset.updated]", "[lsm.dataset.update]"),
    ("prefect.yaml", 'benchmark: "{{', 'benchmrk: "{{'),
    ("prefect.yaml", 'dataset: "{{', 'datast: "{{'),
    ("prefect.yaml", "name: lsm-control", "name: lsm-controll"),
    ("prefect.yaml", "name: lsm-cells", "name: lsm-cell"),
    ("prefect.yaml", "work_pool: *cells", "work_pool: *control"),
    ("prefect.toml", "heartbeat_frequency", "heartbeat_frequenzy"),
    ("prefect.toml", "[server.ephemeral]", "[server.ephemeral_]"),
    ("infra/automations.yaml", "for_each", "foreach"),
    ("infra/automations.yaml", "        - prefect.flow-run.Pending\n", ""),
    ("infra/automations.yaml", "match_related", "match_relatd"),
    ("infra/automations.yaml", "posture: Proactive", "posture: Proactiv"),
    ("infra/automations.yaml", "prefect.flow-run.Crashed", "prefect.flow-run.Crshed"),
    ("infra/automations.yaml", "prefect.flow-run.Suspended", "prefect.flow-run.Suspendet"),
    ("infra/automations.yaml", "prefect.run-count", "prefect.run-cont"),
    ("infra/automations.yaml", "exception: ConnectError", "exception: ConectError"),
    ("infra/automations.yaml", "encountered an exception: Read", "encounterd an exception: Read"),
    ("infra/automations.yaml", "        message:", "        mesage:"),
    ("infra/compose.yaml", "stop_grace_period:", "stop_grace_perod:"),
    ("infra/compose.yaml", "LSM_STORE:", "LSM_STOR:"),
    ("infra/compose.example.env", "STORE_ACCESS_KEY=", "STORE_ACESS_KEY="),
    ("infra/example.env", "LSM_WORKERS=", "LSM_WORKER="),
    ("infra/.gitignore", "*.tfstate\n", "*.tfstat\n"),
    ("infra/images/Dockerfile", "WORKDIR /build", "WORKDIRR /build"),
    ("infra/images/Dockerfile", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRI"),
    ("infra/images/Dockerfile", "--from=cpu-packages", "--from=cpu-package"),
    ("infra/images/Dockerfile.dockerignore", "!constraints.txt", "!constrants.txt"),
    ("infra/images/basic_auth.ini", "default_permission", "default_permision"),
    ("infra/images/basic_auth.ini", "= READ", "= REED"),
    ("infra/images/server.txt", "asyncpg", "asynpg"),
    ("infra/images/job-worker.txt", "prefect-kubernetes", "prefect-kubernets"),
    ("infra/images/job-worker.txt", "kopf==", "kopff=="),
    ("infra/images/job-worker.txt", "tenacity==", "tenacity="),
    ("infra/postgres/databases.sh", "own_database mlflow", "own_databse mlflow"),
    ("infra/postgres/databases.sh", "${PREFECT_DATABASE_PASSWORD", "${PREFECT_DATABSE_PASSWORD"),
    ("infra/postgres/databases.sh", "REVOKE ALL", "REVOK ALL"),
    ("infra/postgres/kustomization.yaml", "configMapGenerator", "configMapGenerater"),
    ("infra/postgres/kustomization.yaml", "databases.sh", "database.sh"),
    (f"{KUBERNETES}/base/deploy.yaml", "backoffLimit", "backofLimit"),
    (f"{KUBERNETES}/base/kustomization.yaml", "literals", "literal"),
    (f"{KUBERNETES}/base/kustomization.yaml", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_URL"),
    (f"{KUBERNETES}/base/mlflow.yaml", "httpHeaders", "httpHeader"),
    (f"{KUBERNETES}/base/mlflow.yaml", "key: MLFLOW_SECRET_KEY", "key: MLFLOW_SECRETKEY"),
    (f"{KUBERNETES}/base/namespace.yaml", "kubernetes.io/enforce", "kubernetes.io/enforc"),
    (f"{KUBERNETES}/base/network-policies.yaml", "values: [prefect-server", "values: [prefect-srv"),
    (f"{KUBERNETES}/base/network-policies.yaml", "lsm/client", "lsm/clients"),
    (f"{KUBERNETES}/base/network-policies.yaml", "podSelector: {}", "podSelectr: {}"),
    (f"{KUBERNETES}/base/network-policies.yaml", "port: 5432", "port: 5433"),
    (f"{KUBERNETES}/base/postgres.yaml", "volumeClaimTemplates", "volumeClaimTemplate"),
    (f"{KUBERNETES}/base/prefect-server.yaml", "targetPort: api", "targetPort: app"),
    (f"{KUBERNETES}/base/service-accounts.yaml", "{name: worker}", "{name: wroker}"),
    (f"{KUBERNETES}/base/store.yaml", "accessModes", "accesModes"),
    (f"{KUBERNETES}/base/store.yaml", "{name: artifacts}", "{name: artefacts}"),
    (f"{KUBERNETES}/base/cell-worker.yaml", "resourceFieldRef", "resourceFeildRef"),
    (f"{KUBERNETES}/base/cell-worker.yaml", "--limit", "--limt"),
    (f"{KUBERNETES}/base/control-worker.yaml", "--with-healthcheck", "--with-healthchek"),
    (f"{KUBERNETES}/cell-job.yaml", "job_configuration:", "job_configurations:"),
    (f"{KUBERNETES}/cell-job.yaml", "    gpus:", "    gpu:"),
    (f"{KUBERNETES}/cell-job.yaml", "{{ memory }}", "{{ memmory }}"),
    (f"{KUBERNETES}/cell-job.yaml", '{{ node_selector }}"', '{{ node_selektor }}"'),
    (f"{KUBERNETES}/cell-job.yaml", "type: integer", "type: integr"),
    (f"{KUBERNETES}/cell-job.yaml", "default: 1\n", "defalt: 1\n"),
    (f"{KUBERNETES}/cell-job.yaml", "default: 1\n", "default: one\n"),
    (f"{KUBERNETES}/cell-job.yaml", "  job_manifest:", "  job_manifst:"),
    (f"{KUBERNETES}/cell-job.yaml", "backoffLimit", "backofLimit"),
    (f"{KUBERNETES}/cell-job.yaml", "completions: 1", "completion: 1"),
    (f"{KUBERNETES}/cell-job.yaml", "name: prefect-job", "name: prefct-job"),
    (f"{KUBERNETES}/cell-job.yaml", "nodeSelector", "nodeSelektor"),
    (f"{KUBERNETES}/cell-job.yaml", "configMapRef: {name: client}", "configMapRef: {name: cliet}"),
    (f"{KUBERNETES}/cell-job.yaml", "key: MLFLOW_ADMIN_PASS", "key: MLFLOW_ADMN_PASS"),
    (f"{KUBERNETES}/cell-job.yaml", "name: MLFLOW_TRACKING_PASS", "name: MLFLOW_TRACKNG_PASS"),
    (f"{KUBERNETES}/cell-job.yaml", "default: worker", "default: wroker"),
    (f"{KUBERNETES}/cell-job.yaml", "claimName: store", "claimName: stor"),
    (f"{KUBERNETES}/cell-job.yaml", "name: home, mountPath", "name: hom, mountPath"),
    (f"{KUBERNETES}/cell-job.yaml", "readOnlyRootFilesystem", "readonlyRootFilesystem"),
    (f"{KUBERNETES}/components/dask/kustomization.yaml", "behavior", "behaviour"),
    (f"{KUBERNETES}/components/dask/kustomization.yaml", "LSM_DASK", "LSM_DESK"),
    (
        f"{KUBERNETES}/components/dask/network-policy.yaml",
        "dask-worker, control-worker",
        "dask-worker, control-wrker",
    ),
    (f"{KUBERNETES}/components/dask/network-policy.yaml", "- from:", "- form:"),
    (f"{KUBERNETES}/components/dask/scheduler.yaml", "tcpSocket", "tcpSoket"),
    (f"{KUBERNETES}/components/dask/workers.yaml", "--nworkers", "--nworker"),
    (f"{KUBERNETES}/components/gpu/kustomization.yaml", "patches", "patchs"),
    (f"{KUBERNETES}/components/gpu/cell-worker.yaml", "tolerations", "tolerationz"),
    (f"{KUBERNETES}/components/gpu/cell-worker.yaml", "{name: cell-worker}", "{name: cel-worker}"),
    (f"{KUBERNETES}/components/kubernetes-jobs/job-worker.yaml", "--type=", "--typ="),
    (
        f"{KUBERNETES}/components/kubernetes-jobs/job-worker.yaml",
        "OBSERVER_NAMESP",
        "OBSERVR_NAMESP",
    ),
    (f"{KUBERNETES}/components/kubernetes-jobs/kustomization.yaml", "POOL_TYPE", "POOLTYPE"),
    (
        f"{KUBERNETES}/components/kubernetes-jobs/kustomization.yaml",
        "disableNameSuffixHash",
        "disableNamesSuffixHash",
    ),
    (
        f"{KUBERNETES}/components/kubernetes-jobs/no-cell-worker.yaml",
        "{name: cell-worker}",
        "{name: cel-worker}",
    ),
    (f"{KUBERNETES}/components/kubernetes-jobs/role.yaml", "[jobs]", "[job]"),
    (f"{KUBERNETES}/components/kubernetes-jobs/role.yaml", "watch, create", "wach, create"),
    (
        f"{KUBERNETES}/components/kubernetes-jobs/role.yaml",
        "kind: Role, name: job",
        "kind: Role, name: jb",
    ),
    (f"{KUBERNETES}/components/s3/kustomization.yaml", "no-store.yaml", "no-stor.yaml"),
    (f"{KUBERNETES}/components/s3/mlflow.yaml", "{name: mlflow}", "{name: mlfow}"),
    (f"{KUBERNETES}/components/s3/no-artifacts.yaml", "{name: artifacts}", "{name: artefacts}"),
    (f"{KUBERNETES}/components/s3/no-store.yaml", "$patch: delete", "$patch: delet"),
    (f"{KUBERNETES}/components/s3/kustomization.yaml", "(control|cell)", "(control|cel)"),
    (f"{KUBERNETES}/components/s3/worker.yaml", "sizeLimit", "sizeLimt"),
    (f"{KUBERNETES}/overlays/cpu/kustomization.yaml", "resources", "resource"),
    (f"{KUBERNETES}/overlays/dask/kustomization.yaml", "components/dask", "components/desk"),
    (f"{KUBERNETES}/overlays/gpu/kustomization.yaml", "components:", "component:"),
    (f"{KUBERNETES}/overlays/kubernetes-jobs/kustomization.yaml", "components:", "component:"),
    (f"{KUBERNETES}/overlays/s3/kustomization.yaml", "components:", "componets:"),
]


def declarations() -> set[str]:
    """Return every file that declares something, but pages, programs and Terraform's."""
    files = {REPOSITORY / "prefect.yaml", REPOSITORY / "prefect.toml", INFRA / ".gitignore"}
    for path in INFRA.rglob("*"):
        parts = path.relative_to(INFRA).parts
        if path.is_file() and not any(part.startswith((".", "__")) for part in parts):
            files.add(path)
    names = {
        str(path.relative_to(REPOSITORY)) for path in files if path.suffix not in (".md", ".py")
    }
    return {name for name in names if not name.startswith("infra/terraform/")}


def test_every_declaration_has_a_check_and_a_planted_typo() -> None:
    assert set(CHECKS) == declarations()
    assert {name for name, _, _ in TYPOS} == declarations()


@pytest.mark.parametrize("name", sorted({check: name for name, check in CHECKS.items()}.values()))
def test_the_checks_have_nothing_against_what_is_declared(name: str) -> None:
    assert CHECKS[name](REPOSITORY) == []


@pytest.mark.parametrize(("name", "right", "wrong"), TYPOS)
def test_a_misspelt_word_is_caught(
    name: str, right: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(INFRA, root / "infra", ignore=shutil.ignore_patterns(".env", ".terraform*"))
    for each in ("prefect.yaml", "prefect.toml"):
        shutil.copy(REPOSITORY / each, root)
    text = (root / name).read_text()
    assert right in text
    (root / name).write_text(text.replace(right, wrong))
    assert CHECKS[name](root) != []
    capsys.readouterr()
