"""Compose, Kubernetes, Terraform, prefect.yaml and the code name the same things."""

import re
import shlex
from pathlib import Path
from urllib.parse import urlparse

import pytest
import yaml

from flows.cli.main import main
from flows.settings import CELL_POOL, CONTROL_POOL, MLFLOW_PORT, PREFECT_PORT, Settings
from tests.infra.known_names import (
    JOB_WORKER_SETTINGS,
    complaint,
    settings_read,
    unknown_variables,
)
from tests.infra.manifests import (
    INFRA,
    REPOSITORY,
    Process,
    compose,
    compose_processes,
    config_maps,
    kubernetes_documents,
    kubernetes_processes,
    pod_specs,
)

PROCESSES = [*compose_processes(), *kubernetes_processes()]
OURS = [each for each in PROCESSES if each.image.startswith("lsm-")]


def described(process: Process) -> str:
    return f"{process.name}-{process.image}"


@pytest.mark.parametrize("process", PROCESSES, ids=described)
def test_every_variable_is_read_by_someone(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unknown_variables(process.environment, process.command, monkeypatch) == set()


@pytest.mark.parametrize(
    "typo",
    [
        "LSM_STOR",
        "PREFECT_API_AUTHSTRING",
        "MLFLOW_TRACKING_URL",
        "AWS_ENDPOINT",
        "PGPASSWD",
        "CLIENT_DATABASE_PASSWORD",
    ],
)
def test_a_misspelt_variable_is_caught(typo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unknown_variables({typo: "x", "PGHOST": "x"}, (), monkeypatch) == {typo}


@pytest.mark.parametrize("process", OURS, ids=described)
def test_every_command_is_one_that_the_program_has(process: Process) -> None:
    assert process.command
    assert complaint(process.command) is None


@pytest.mark.parametrize(
    "command",
    [
        "lsm stak up",
        "lsm train lsm --benchmark darcy",
        "prefect worker start --pol lsm-cells",
        "prefect wroker start",
        "mlflow server --prt=5000",
        "mlflow serv",
        "dask worker tcp://dask-scheduler:8786 --nworker=4",
        "dask schedule",
        "sh -c 'prefect deploy --all && prefect --no-prompt deploi'",
        "python train.py",
    ],
)
def test_a_misspelt_command_is_caught(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(shlex.split(command))
    capsys.readouterr()


def test_the_pools_are_those_that_are_deployed_to() -> None:
    declared = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())
    pools = {deployment["work_pool"]["name"] for deployment in declared["deployments"]}
    assert pools == {CONTROL_POOL, CELL_POOL}
    dockerfile = (INFRA / "images" / "Dockerfile").read_text()
    assert set(re.findall(r'"--pool", "([^"]+)", "--limit", "1"', dockerfile)) == {CELL_POOL}
    assert dockerfile.count('"--pool"') == 2


def test_cells_train_one_at_a_time_and_what_waits_for_them_has_no_limit() -> None:
    # With a limit, comparisons that wait would keep each other's cells from beginning.
    served: dict[str, set[str]] = {}
    for process in OURS:
        command = " ".join(process.command)
        if pool := re.search(r"--pool[ =](\S+)", command):
            limit = re.search(r"--limit (\d+)", command)
            served.setdefault(pool[1], set()).add(f"{process.name} {limit[1] if limit else '-'}")
    assert served == {
        CONTROL_POOL: {"control-worker -"},
        # A job worker only starts jobs; how many there are is the pool's limit.
        CELL_POOL: {"cell-worker-cpu 1", "cell-worker-gpu 1", "cell-worker 1", "job-worker -"},
    }


def test_servers_listen_where_clients_and_settings_look() -> None:
    for processes in (compose_processes(), kubernetes_processes()):
        by_name = {process.name: process for process in processes}
        prefect = " ".join(by_name["prefect-server"].command)
        mlflow = " ".join(by_name["mlflow"].command)
        assert f"--port {PREFECT_PORT}" in prefect
        assert f"--port={MLFLOW_PORT}" in mlflow
        for process in processes:
            variables = process.environment
            if "PREFECT_API_URL" in variables:
                assert variables["PREFECT_API_URL"] == f"http://prefect-server:{PREFECT_PORT}/api"
            if "MLFLOW_TRACKING_URI" in variables:
                assert variables["MLFLOW_TRACKING_URI"] == f"http://mlflow:{MLFLOW_PORT}"
        hosts = by_name["mlflow"].environment["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
        assert f"mlflow:{MLFLOW_PORT}" in hosts
        assert "*" not in hosts


def test_services_of_kubernetes_listen_on_the_same_ports() -> None:
    ports = {
        each["metadata"]["name"]: each["spec"]["ports"][0]["port"]
        for each in kubernetes_documents()
        if each["kind"] == "Service"
    }
    assert ports["prefect-server"] == PREFECT_PORT
    assert ports["mlflow"] == MLFLOW_PORT
    assert ports["postgres"] == 5432


def test_health_checks_ask_the_port_that_is_served() -> None:
    served = {"prefect-server": PREFECT_PORT, "mlflow": MLFLOW_PORT, "object-store": 9000}
    for name, port in served.items():
        assert str(port) in " ".join(compose()["services"][name]["healthcheck"]["test"]), name


def test_each_server_has_a_database_and_a_role_that_the_script_makes() -> None:
    script = (INFRA / "postgres" / "databases.sh").read_text()
    made = dict(re.findall(r'^own_database (\w+) "\$\{(\w+):\?\}"$', script, flags=re.MULTILINE))
    assert made == {
        "prefect": "PREFECT_DATABASE_PASSWORD",
        "mlflow": "MLFLOW_DATABASE_PASSWORD",
    }
    for processes in (compose_processes(), kubernetes_processes()):
        by_name = {process.name: process.environment for process in processes}
        url = urlparse(by_name["prefect-server"]["PREFECT_SERVER_DATABASE_CONNECTION_URL"])
        assert (url.scheme, url.username, url.password) == ("postgresql+asyncpg", "prefect", None)
        assert (url.hostname, url.port, url.path) == ("postgres", 5432, "/prefect")
        mlflow = by_name["mlflow"]
        assert (mlflow["PGUSER"], mlflow["PGDATABASE"]) == ("mlflow", "mlflow")
        assert (mlflow["PGHOST"], mlflow["PGPORT"]) == ("postgres", "5432")
        for server, role in (("prefect-server", "prefect"), ("mlflow", "mlflow")):
            assert made[role] in by_name[server]["PGPASSWORD"]
            assert made[role] in by_name["postgres"]


def test_both_ask_for_the_password() -> None:
    for processes in (compose_processes(), kubernetes_processes()):
        by_name = {process.name: process for process in processes}
        assert (
            "PREFECT_AUTH_STRING"
            in (by_name["prefect-server"].environment["PREFECT_SERVER_API_AUTH_STRING"])
        )
        assert "--app-name=basic-auth" in by_name["mlflow"].command
        for process in processes:
            if "PREFECT_API_URL" in process.environment and "dask" not in process.name:
                assert "PREFECT_AUTH_STRING" in process.environment["PREFECT_API_AUTH_STRING"]


def test_the_store_is_an_address_that_the_settings_take(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = {process.environment.get("LSM_STORE") for process in OURS} - {None}
    assert stores
    for store in stores:
        monkeypatch.setenv("LSM_STORE", str(store))
        assert Settings.from_environment().root.url.endswith(str(store))


def test_whoever_has_no_volume_for_the_store_can_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kustomization = (INFRA / "kubernetes" / "base" / "kustomization.yaml").read_text()
    store = re.search(r"LSM_STORE=(/\S+)", kustomization)
    assert store
    base = {path.stem for path in (INFRA / "kubernetes" / "base").iterdir()}
    without = {
        name: container["command"]
        for name, spec in pod_specs()
        for container in spec["containers"]
        if name in base
        and "configMapRef" in str(container.get("envFrom"))
        and "lsm-server" not in container["image"]
        and store[1] not in [mount["mountPath"] for mount in container["volumeMounts"]]
    }
    assert without == {"deploy": ["lsm", "stack", "deploy"]}
    (tmp_path / "file").touch()
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "file" / "store"))
    done = []
    monkeypatch.setattr("flows.stack.deployment.deploy", lambda *_: done.append("deployed"))
    assert main(without["deploy"][1:]) == 0
    assert done == ["deployed"]


def test_buckets_that_are_written_to_are_made() -> None:
    services = compose()["services"]
    made = set(re.findall(r"/data/(\w+)", " ".join(services["object-store"]["command"])))
    text = (INFRA / "compose.yaml").read_text()
    assert set(re.findall(r"s3://(\w+)/", text)) == made


def test_folders_of_the_bucket_are_those_that_the_roles_may_write() -> None:
    maps = config_maps()
    folders = re.search(
        r'worker = "(\w+)"\s+mlflow = "(\w+)"', (INFRA / "terraform" / "roles.tf").read_text()
    )
    assert folders
    assert maps["client"]["LSM_STORE"].rsplit("/", 1)[1] == folders[1]
    assert maps["mlflow"]["ARTIFACTS"].rsplit("/", 1)[1] == folders[2]


def test_service_accounts_and_secrets_of_terraform_are_those_of_kubernetes() -> None:
    text = "".join(path.read_text() for path in (INFRA / "terraform").glob("*.tf"))
    accounts = {
        each["metadata"]["name"]
        for each in kubernetes_documents()
        if each["kind"] == "ServiceAccount"
    }
    assert {"worker", "mlflow"} <= accounts
    example = (INFRA / "compose.example.env").read_text()
    named = set(re.findall(r'^ +"([A-Z_]+)",$', text, flags=re.MULTILINE))
    assert named
    assert named <= set(re.findall(r"^([A-Z_]+)=", example, flags=re.MULTILINE))
    assert 'default     = "lsm"' in text


def test_state_lies_where_the_image_lets_the_user_write() -> None:
    dockerfile = (INFRA / "images" / "Dockerfile").read_text()
    assert "/opt/lsm/.lsm" in dockerfile
    results = (REPOSITORY / "prefect.toml").read_text()
    assert 'local_storage_path = ".lsm/' in results
    for name in ("control-worker", "cell-worker-cpu", "cell-worker-gpu"):
        assert compose()["services"][name]["volumes"] == ["worker-state:/opt/lsm/.lsm"]


def test_no_manifest_holds_a_secret() -> None:
    secret = re.compile(r"PASSWORD|SECRET|AUTH_STRING|AUTH_KEY|ACCESS_KEY")
    for process in PROCESSES:
        for name, value in process.environment.items():
            if secret.search(name) and name not in JOB_WORKER_SETTINGS:  # those say which secret
                assert re.fullmatch(r'"?(\$\{[A-Z_]+:\?[^}]+\},?)+"?|<[A-Z_]+>', value), name
    for path in INFRA.rglob("*"):
        # Hidden files are an operator's own: the secrets themselves, Terraform's providers.
        hidden = any(part.startswith(".") for part in path.relative_to(INFRA).parts)
        if path.is_file() and not hidden:
            # A password inside an address, an AWS key, a private key.
            text = path.read_text()
            assert not re.search(r"://[\w.-]+:[^@/\s$]+@", text), path
            assert not re.search(r"\bAKIA[0-9A-Z]{16}\b|PRIVATE KEY", text), path


def test_settings_that_manifests_set_are_documented() -> None:
    ours = {name for process in OURS for name in process.environment if name.startswith("LSM_")}
    assert ours == {
        "LSM_CELL_POOL_TYPE",
        "LSM_DASK",
        "LSM_DEVICE",
        "LSM_MLFLOW_PAGES",
        "LSM_STORE",
        "LSM_WORKERS",
    }
    assert ours <= settings_read()
