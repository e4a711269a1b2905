import re
import tomllib
from pathlib import Path, PurePosixPath

import pytest

from tests.infra.known_names import complaint, unknown_variables
from tests.infra.manifests import INFRA, REPOSITORY, compose, pod_specs, run, tool

FILE = INFRA / "images" / "Dockerfile"


def project() -> dict[str, object]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def stages() -> dict[str, str]:
    """Return the text of every stage by its name."""
    parts = re.split(r"^FROM \S+ AS (\S+)\n", FILE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_recipe_has_no_fault_that_hadolint_knows() -> None:
    done = run(tool("hadolint"), FILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("USER 10001:10001", "USER root", "DL3002"),
        ("WORKDIR /opt/lsm", "WORKDIR opt/lsm", "DL3000"),
        ("COPY constraints.txt ./", "ADD constraints.txt ./", "DL3020"),
        ("FROM ${PYTHON_IMAGE} AS build", "FROM python AS build", "DL3006"),
        ("RUN python -m venv", "RUNN python -m venv", "missing whitespace"),
    ],
)
def test_a_planted_fault_is_caught(right: str, wrong: str, rule: str, tmp_path: Path) -> None:
    text = FILE.read_text()
    assert right in text
    planted = tmp_path / "Dockerfile"
    planted.write_text(text.replace(right, wrong))
    done = run(tool("hadolint"), planted)
    assert done.returncode != 0
    assert rule in done.stdout


def test_python_is_the_projects() -> None:
    version = re.search(r"PYTHON_IMAGE=python:(\d+)\.(\d+)\.\d+-", FILE.read_text())
    assert version
    lowest = re.search(r">=(\d+)\.(\d+)", str(project()["requires-python"]))
    assert lowest
    assert version.groups() == lowest.groups()
    constraints = (REPOSITORY / "constraints.txt").read_text().splitlines()[0]
    assert f"Python {'.'.join(version.groups())}" in constraints


def test_final_images_run_as_a_numbered_user_and_start_a_command_that_exists() -> None:
    for name in ("server", "cpu", "cuda"):
        stage = stages()[name]
        assert "\nUSER 10001:10001\n" in stage, name
        last = stage.strip().splitlines()[-1]
        command = re.findall(r'"([^"]+)"', last)
        assert last.startswith("CMD ["), name
        assert complaint(command) is None, name


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    sent = (INFRA / "images" / "Dockerfile.dockerignore").read_text().splitlines()
    for line in FILE.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (REPOSITORY / source).exists(), source
                assert f"!{source}" in sent, f"{source} is ignored"


def test_stages_and_targets_that_are_named_exist() -> None:
    text = FILE.read_text()
    named = re.findall(r"from=([\w-]+)", text)
    assert set(named) <= set(stages())
    targets = {
        service["build"]["target"]
        for service in compose()["services"].values()
        if "build" in service
    }
    assert targets == {"server", "cpu", "cuda"}
    assert targets <= set(stages())


def test_the_images_variables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    set_here = dict(
        re.findall(
            r"([A-Z][A-Z_]+)=(\S*)",
            "\n".join(re.findall(r"^ENV ((?:.*\\\n)*.*)$", FILE.read_text(), flags=re.MULTILINE)),
        )
    )
    assert {"DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "NVIDIA_VISIBLE_DEVICES"} <= set(set_here)
    assert unknown_variables(set_here, (), monkeypatch) == set()


def test_telemetry_is_off_in_every_image() -> None:
    runtime = stages()["runtime"]
    for setting in (
        "DO_NOT_TRACK=true",
        "PREFECT_SERVER_ANALYTICS_ENABLED=false",
        "MLFLOW_DISABLE_TELEMETRY=true",
    ):
        assert setting in runtime


@pytest.mark.filterwarnings("ignore")  # of Prefect and FastAPI, about their own code
def test_prefects_pages_are_copied_to_where_its_user_may_write(tmp_path: Path) -> None:
    setting = "PREFECT_SERVER_UI_STATIC_DIRECTORY"
    found = re.search(rf"{setting}=(\S+)", stages()["server"])
    assert found
    folder = PurePosixPath(found[1])
    mounted = [each.partition(":")[0] for each in compose()["services"]["prefect-server"]["tmpfs"]]
    assert str(folder.parent) in mounted
    spec = dict(pod_specs())["prefect-server"]
    emptied = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    (mounts,) = (each["volumeMounts"] for each in spec["containers"])
    assert str(folder.parent) in [each["mountPath"] for each in mounts if each["name"] in emptied]
    # The folder is not there at first, and is made with all that a browser asks for.
    from fastapi.testclient import TestClient
    from prefect.server.api.server import create_ui_app
    from prefect.settings import PREFECT_SERVER_UI_STATIC_DIRECTORY, temporary_settings

    assert PREFECT_SERVER_UI_STATIC_DIRECTORY.name == setting
    with temporary_settings({PREFECT_SERVER_UI_STATIC_DIRECTORY: str(tmp_path / "new" / "ui")}):
        pages = create_ui_app(ephemeral=False)
    assert TestClient(pages).get("/").status_code == 200
    assert list((tmp_path / "new" / "ui").rglob("index.html"))


def test_the_tag_is_the_projects_version() -> None:
    tags = {
        service["image"]
        for service in compose()["services"].values()
        if service["image"].startswith("lsm-")
    }
    version = project()["version"]
    assert tags == {f"lsm-{name}:{version}" for name in ("server", "cpu", "cuda")}


def test_the_servers_packages_are_pinned_as_the_projects_are() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = {
        line.split("==")[0].lower(): line.split("==")[1].split(" ")[0]
        for line in lines
        if "==" in line
    }
    for line in (INFRA / "images" / "server.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, _, version = line.partition("==")
        assert pins.get(name.lower(), version) == (version or pins[name.lower()]), name
        assert version or name.lower() in pins, f"{name} has no version"


def test_no_package_index_is_written_down() -> None:
    text = "".join(path.read_text() for path in (INFRA / "images").iterdir())
    assert "://" not in text.replace("postgresql+psycopg2://", "")
