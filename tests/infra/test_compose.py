import re
from pathlib import Path

import yaml

from flows.settings import MLFLOW_PORT, PREFECT_PORT
from tests.infra.manifests import INFRA, compose, run, tool

FILE = INFRA / "compose.yaml"


def check(path: Path) -> tuple[int, str]:
    done = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", path)
    return done.returncode, done.stdout


def test_the_file_follows_the_compose_specification() -> None:
    code, said = check(FILE)
    assert code == 0, said


def test_misspelt_words_are_caught(tmp_path: Path) -> None:
    text = FILE.read_text()
    typos = {"healthcheck": "healthchek", "restart": "restar", "tmpfs": "tempfs"}
    for word, typo in typos.items():
        text = re.sub(rf"\b{word}:", f"{typo}:", text)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(text)
    code, said = check(wrong)
    assert code != 0
    for typo in typos.values():
        assert typo in said


def test_every_port_is_published_on_loopback_only() -> None:
    published = {
        name: service["ports"]
        for name, service in compose()["services"].items()
        if "ports" in service
    }
    assert published == {
        "object-store": ["127.0.0.1:9000:9000"],
        "prefect-server": [f"127.0.0.1:{PREFECT_PORT}:{PREFECT_PORT}"],
        "mlflow": [f"127.0.0.1:{MLFLOW_PORT}:{MLFLOW_PORT}"],
    }


def test_every_service_is_hardened_watched_and_started_again() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == ("on-failure:5" if name == "deploy" else "unless-stopped"), (
            name
        )
        assert service["healthcheck"] == {"disable": True} or "test" in service["healthcheck"], name
        tag = service["image"].rpartition(":")[2]
        assert re.match(r"\d+\.\d+", tag), f"{name} has no pinned image"


def test_only_the_gpu_worker_waits_for_its_profile() -> None:
    services = compose()["services"]
    assert {name for name, each in services.items() if "profiles" in each} == {"cell-worker-gpu"}
    assert services["cell-worker-gpu"]["profiles"] == ["gpu"]


def test_services_wait_for_services_and_mount_volumes_that_exist() -> None:
    declared = compose()
    mounted = set()
    for name, service in declared["services"].items():
        assert set(service.get("depends_on", ())) <= set(declared["services"]), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (INFRA / source).is_file(), volume
            else:
                mounted.add(source)
    assert mounted == set(declared["volumes"])


def test_whoever_is_waited_for_until_healthy_has_a_health_check() -> None:
    services = compose()["services"]
    for service in services.values():
        for other, wait in service.get("depends_on", {}).items():
            if wait["condition"] == "service_healthy":
                assert "test" in services[other]["healthcheck"], other


def test_every_secret_is_demanded_and_its_absence_explained() -> None:
    example = (INFRA / "compose.example.env").read_text()
    named = dict(line.split("=", 1) for line in example.splitlines() if re.match(r"[A-Z]", line))
    assert set(named.values()) == {""}, "the example must not hold a value"
    used = re.findall(r"\$\{([A-Z_]+)(:[-?])?([^}]*)\}", FILE.read_text())
    optional = {name for name, kind, _ in used if kind == ":-"}
    assert {name for name, _, _ in used} - optional == set(named)
    for name, kind, message in used:
        assert name in optional or (kind, message) == (
            ":?",
            "set it in infra/.env, see infra/compose.example.env",
        ), name


def test_the_secrets_file_is_never_committed() -> None:
    assert ".env" in (INFRA / ".gitignore").read_text().splitlines()
    ignored = (INFRA / "images" / "Dockerfile.dockerignore").read_text().splitlines()
    assert next(line for line in ignored if not line.startswith("#")) == "*"


def test_anchors_are_merged_as_compose_merges_them() -> None:
    # A later key of the service wins over the anchor's: the job that deploys has no health check.
    services = compose()["services"]
    assert services["deploy"]["command"][0] == "lsm"
    assert services["cell-worker-gpu"]["environment"]["LSM_STORE"].startswith("s3://lsm/")
    assert yaml.safe_load(FILE.read_text())["name"] == "lsm"
