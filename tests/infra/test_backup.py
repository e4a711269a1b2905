"""The lines of infra/README.md that back up and restore, run against real servers."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.infra.manifests import INFRA
from tests.infra.postgres_server import PostgresServer, make_databases, postgres_server

PASSWORDS = {"prefect": "a 'quoted' password", "mlflow": 'another "one"'}


@dataclass(frozen=True)
class Way:
    """How the lines reach a container; the carrier runs here what would run in one."""

    name: str
    command: str
    titles: tuple[str, str]
    carrier: str
    chunk: Path


WAYS = [
    Way(
        "compose",
        "docker compose --file infra/compose.yaml",
        ("Back up", "Restore"),
        """#!/bin/bash
while [[ $# -gt 0 && $1 != exec ]]; do shift; done
[[ $# -eq 0 ]] && exit 0
shift 3    # exec --no-TTY SERVICE
exec "${@/#\\/data/$OBJECTS}"
""",
        Path("lsm/store/chunk"),
    ),
    Way(
        "kubectl",
        "kubectl --namespace lsm",
        ("Back up on Kubernetes", "Restore on Kubernetes"),
        """#!/bin/bash
while [[ $# -gt 0 && $1 != exec ]]; do shift; done
[[ $# -eq 0 ]] && exit 0
while [[ $2 != -- ]]; do shift; done
volume=$OBJECTS/${1#*/}    # of deployment/NAME
mkdir -p "$volume"
shift 2
exec $AS_USER "${@/#\\/opt\\/lsm\\/.lsm/$volume}"
""",
        Path("control-worker/checkpoints/chunk"),
    ),
]


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Return a folder that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="backup-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Return two servers with roles and databases made as in the containers: one full, one new."""
    with postgres_server() as old, postgres_server() as new:
        for server in (old, new):
            make_databases(server, PASSWORDS)
        yield old, new


def page_block(title: str, way: Way) -> str:
    """Return the commands below a heading, without the line that says how to reach the stack."""
    page = (INFRA / "README.md").read_text()
    text = page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    first, rest = blocks[0].split("\n", 1)
    assert first == f'{way.name}="{way.command}"'
    return rest


def run_block(title: str, way: Way, folder: Path, server: PostgresServer, objects: Path) -> None:
    run_lines(page_block(title, way), way, folder, {**server.environment, "OBJECTS": str(objects)})


def run_lines(lines: str, way: Way, folder: Path, environment: Mapping[str, str]) -> None:
    carrier = folder / way.name
    carrier.write_text(way.carrier)
    carrier.chmod(0o755)
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{way.name}={carrier}\n{lines}"],
        cwd=folder,
        env=environment,
        check=True,
        timeout=120,
    )


def log_a_run(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Record a run in MLflow's own tables and return its id."""
    client = mlflow_client(server, monkeypatch)
    run = client.create_run(client.create_experiment("benchmark"))
    client.log_metric(run.info.run_id, "test/rel_l2", 0.0065, step=500)
    return run.info.run_id


def mlflow_client(server: PostgresServer, monkeypatch: pytest.MonkeyPatch):
    from mlflow import MlflowClient

    for name, value in {
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGDATABASE": "mlflow",
        "PGUSER": "mlflow",
        "PGPASSWORD": PASSWORDS["mlflow"],
    }.items():
        monkeypatch.setenv(name, value)
    # The port makes the address a new one: MLflow keeps its connections by address.
    return MlflowClient(f"postgresql+psycopg2://:{server.port}/mlflow")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow and SQLAlchemy, about their own tables
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_what_is_backed_up_is_restored_on_another_server(
    way: Way,
    servers: tuple[PostgresServer, PostgresServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = servers
    run_id = log_a_run(old, monkeypatch)
    made = old.ask(
        "prefect",
        "CREATE EXTENSION pg_trgm; CREATE TABLE runs AS SELECT generate_series(1, 1000) AS number;"
        "CREATE INDEX by_text ON runs USING gin ((number::text) gin_trgm_ops)",
        "prefect",
        PASSWORDS["prefect"],
    )
    assert "ERROR" not in made
    objects = {name: tmp_path / f"objects-{name}" for name in ("old", "new")}
    (objects["old"] / way.chunk).parent.mkdir(parents=True)
    objects["new"].mkdir()
    (objects["old"] / way.chunk).write_bytes(os.urandom(1000))
    backing_up, restoring = way.titles

    run_block(backing_up, way, tmp_path, old, objects["old"])
    # What the new server has by itself must go: a restored database is the old one, not a mixture.
    new.ask("prefect", "CREATE TABLE other (number int)", "prefect", PASSWORDS["prefect"])
    run_block(restoring, way, tmp_path, new, objects["new"])

    restored = mlflow_client(new, monkeypatch).get_run(run_id)
    assert restored.data.metrics == {"test/rel_l2": 0.0065}
    count = "SELECT count(*) FROM runs WHERE number::text LIKE '%99%'"
    assert new.ask("prefect", count, "prefect", PASSWORDS["prefect"]) == "19"
    tables = "SELECT tablename, tableowner FROM pg_tables WHERE schemaname = 'public'"
    assert new.ask("prefect", tables, "prefect", PASSWORDS["prefect"]) == "runs|prefect"
    assert "permission denied" in new.ask("prefect", "SELECT 1", "mlflow", PASSWORDS["mlflow"])
    restored_chunk = (objects["new"] / way.chunk).read_bytes()
    assert restored_chunk == (objects["old"] / way.chunk).read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another owner")
def test_files_come_back_into_a_volume_whose_root_is_the_clusters(reachable: Path) -> None:
    way = WAYS[1]
    user = "setpriv --reuid=10001 --regid=10001 --clear-groups"
    for name in ("old", "new"):
        for volume in ("mlflow", "control-worker"):
            # As Kubernetes mounts one for the group of its pods, with what a file system has.
            for folder in (Path(volume), Path(volume) / "lost+found"):
                (reachable / name / folder).mkdir(parents=True)
                os.chown(reachable / name / folder, 0, 10001)
                (reachable / name / folder).chmod(0o2775)
    chunk = reachable / "old" / way.chunk
    chunk.parent.mkdir()
    chunk.write_bytes(os.urandom(1000))
    replaced = reachable / "new" / way.chunk
    replaced.parent.mkdir()
    replaced.write_bytes(b"of another time")
    for path in (replaced, replaced.parent):
        os.chown(path, 10001, 10001)
    for title, name in zip(way.titles, ("old", "new"), strict=True):
        lines = [line for line in page_block(title, way).splitlines() if " tar " in line]
        assert len(lines) == 2
        environment = {**os.environ, "OBJECTS": str(reachable / name), "AS_USER": user}
        run_lines("\n".join(lines), way, reachable, environment)
    assert replaced.read_bytes() == chunk.read_bytes()
    root = (reachable / "new" / "control-worker").stat()
    assert (root.st_uid, root.st_gid, oct(root.st_mode)) == (0, 10001, "0o42775")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_torn_copy_is_refused(
    way: Way, servers: tuple[PostgresServer, PostgresServer], tmp_path: Path
) -> None:
    old, new = servers
    old.ask(
        "prefect",
        "CREATE TABLE runs AS SELECT generate_series(1, 100000) AS number",
        "prefect",
        PASSWORDS["prefect"],
    )
    objects = tmp_path / "objects"
    objects.mkdir()
    backing_up, restoring = way.titles
    run_block(backing_up, way, tmp_path, old, objects)
    copy = tmp_path / "prefect.dump"
    copy.write_bytes(copy.read_bytes()[:-2000])
    with pytest.raises(subprocess.CalledProcessError):
        run_block(restoring, way, tmp_path, new, objects)
