"""The environment, read here and nowhere else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.errors import BadInput
from storage.credentials import split_address, without_credentials
from storage.errors import translated
from storage.location import Location

DEFAULT_STORE = ".lsm"
PREFECT_PORT = 4200
CONTROL_POOL, CELL_POOL = "lsm-control", "lsm-cells"
"""The work pools in prefect.yaml: of flows that submit and wait, and of cells that train.

They are two, or comparisons that wait for their cells would take the places of those.
"""
CELL_DEPLOYMENT = "cell/train-cell"
URGENT_QUEUE = "sources"
"""The queue of cells that others start from; workers empty it first."""
RETRAINING_QUEUE = "retrainings"
"""The queue of retrainings in prefect.yaml, which starts one after the other."""
MLFLOW_PORT = 5000
DEFAULT_MEMORY = 4096


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where things lie and how much of the machine may be used.

    LSM_STORE            root of data, checkpoints and reports; `.lsm` in this folder
    MLFLOW_TRACKING_URI  where runs are recorded; a sqlite file in the root
    LSM_DASK             address of a Dask scheduler that makes data; processes of this machine
    LSM_WORKERS          processes at once on this machine; the number of cores
    PREFECT_API_URL      Prefect server to report to; one is started when none answers
    LSM_MIRRORS          places to ask for official files first, with blanks between
    LSM_DATABASE         what the stack's servers keep: `local` for a PostgreSQL server of its own,
                         or postgresql://USER:PASSWORD@HOST:PORT of one that has the databases
                         `prefect` and `mlflow`; sqlite files in the root
    LSM_MLFLOW_PORT      port of the stack's MLflow server; 5000
    LSM_MLFLOW_PAGES     MLflow's address in a browser; the tracking server's, or the stack's
    LSM_DEVICE           what to train on: cpu, cuda or mps; a GPU if there is one
    LSM_GPUS             GPUs of the stack's workers, as 0,1,2 or none; those that nvidia-smi lists
    LSM_RUNS_PER_GPU     cells that train on a GPU at once; 1
    LSM_CELL_POOL_TYPE   what the pool of cells is made of: process, kubernetes, ...; process
    LSM_MEMORY           MiB of training samples that a run may hold; larger sets are read as used
    """

    root: Location
    tracking_uri: str
    dask_address: str | None
    n_workers: int
    prefect_api: str
    mlflow_port: int
    mirrors: tuple[str, ...]
    device: str
    memory: int
    database: str | None = None
    mlflow_pages: str | None = None
    gpus: str | None = None
    runs_per_gpu: int = 1
    cell_pool_type: str = "process"

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment now; BadInput for a value that cannot be used."""
        with translated(ValueError, into=BadInput):
            root = Location.parse(os.environ.get("LSM_STORE") or DEFAULT_STORE)
        state, database = _state(root), os.environ.get("LSM_DATABASE") or None
        runs = (
            database_url(database, state, "mlflow") if database else f"sqlite:///{state}/mlflow.db"
        )
        return cls(
            root=root,
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or runs,
            database=database,
            dask_address=os.environ.get("LSM_DASK") or None,
            n_workers=_positive("LSM_WORKERS", _cores()),
            prefect_api=os.environ.get("PREFECT_API_URL") or f"http://127.0.0.1:{PREFECT_PORT}/api",
            mlflow_port=_positive("LSM_MLFLOW_PORT", MLFLOW_PORT),
            mlflow_pages=os.environ.get("LSM_MLFLOW_PAGES") or None,
            mirrors=tuple(os.environ.get("LSM_MIRRORS", "").split()),
            device=os.environ.get("LSM_DEVICE") or "auto",
            memory=_positive("LSM_MEMORY", DEFAULT_MEMORY) * 2**20,
            gpus=os.environ.get("LSM_GPUS") or os.environ.get("CUDA_VISIBLE_DEVICES") or None,
            runs_per_gpu=_positive("LSM_RUNS_PER_GPU", 1),
            cell_pool_type=os.environ.get("LSM_CELL_POOL_TYPE") or "process",
        )

    @property
    def state(self) -> Path:
        """Return the folder on this machine for servers' databases and logs."""
        return _state(self.root)

    @property
    def mlflow_address(self) -> str:
        """Return where browsers find MLflow, without credentials: links are shown and kept."""
        is_server = self.tracking_uri.startswith("http")
        server = self.tracking_uri if is_server else f"http://127.0.0.1:{self.mlflow_port}"
        return without_credentials(self.mlflow_pages or server).rstrip("/")


_in_use: ContextVar[Settings | None] = ContextVar("settings", default=None)


def current_settings() -> Settings:
    """Return the settings that the command has read, or else those of the environment, checked.

    Flows ask here instead of having a parameter, which Prefect would keep and show: addresses of
    databases may hold passwords. Where a deployment starts a flow, there is no command.
    """
    settings = _in_use.get()
    if settings is None:
        settings = Settings.from_environment()
        settings.root.require_writable()
    return settings


@contextmanager
def use_settings(settings: Settings) -> Iterator[None]:
    """Let `current_settings` return these while the block runs."""
    token = _in_use.set(settings)
    try:
        yield
    finally:
        _in_use.reset(token)


def database_url(database: str, state: Path, name: Literal["prefect", "mlflow"]) -> str:
    """Return the URL of one of the two databases, with the driver that its server takes."""
    driver = {"prefect": "asyncpg", "mlflow": "psycopg2"}[name]
    if database == "local":
        return f"postgresql+{driver}://postgres@/{name}?host={postgres_folder(state)}"
    with translated(ValueError, into=lambda error: BadInput(f"LSM_DATABASE {error}")):
        where = split_address(database)
    if where.query:
        raise BadInput(
            "LSM_DATABASE has settings behind a question mark, which the drivers of the two "
            "servers name differently; give them by the environment (PGSSLMODE and the like)"
        )
    is_server = where.scheme == "postgresql" and bool(where.netloc)
    if not is_server or where.path.strip("/"):
        got = "a name behind the host" if is_server else f"one of the scheme {where.scheme!r}"
        raise BadInput(
            "LSM_DATABASE must be `local` or postgresql://USER:PASSWORD@HOST:PORT without a "
            f"database, got {got}"
        )
    return f"postgresql+{driver}://{where.netloc}/{name}"


def postgres_folder(state: Path) -> Path:
    """Return where the stack's own PostgreSQL server has its files and its socket."""
    return state / "postgres"


def service_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for Prefect and MLflow: state under the root, no telemetry."""
    return {
        # By default any page that a browser shows may speak with the server; its own needs nothing.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": "http://127.0.0.1",
        **os.environ,
        "PREFECT_HOME": str(settings.state / "prefect"),
        "PREFECT_LOCAL_STORAGE_PATH": str(settings.state / "prefect" / "results"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Without this MLflow's server starts eight more processes for jobs that are not used here.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def _state(root: Location) -> Path:
    return root.local_path or Path(DEFAULT_STORE).absolute()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _positive(name: str, default: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"{name} must be a whole number of at least 1, got {text!r}")
    return int(text)
