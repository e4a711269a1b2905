"""What the code, Prefect, MLflow, Dask and AWS know: variables and commands, asked of them."""

import re
import shlex
import warnings
from collections.abc import Mapping, Sequence

import pytest

from tests.infra.manifests import INFRA, REPOSITORY

LIBPQ = {"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGDATA"}
OTHERS = {
    "DO_NOT_TRACK",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "PATH",
    "PYTHONUNBUFFERED",
    "PIP_NO_CACHE_DIR",
    "PIP_DISABLE_PIP_VERSION_CHECK",
    "RCLONE_AUTH_KEY",
    "POSTGRES_USER",
    "POSTGRES_PASSWORD",
}
"""Variables of images and drivers that no package here can be asked about."""
JOB_WORKER = "PREFECT_INTEGRATIONS_KUBERNETES_"
JOB_WORKER_SETTINGS = {
    f"{JOB_WORKER}WORKER_API_AUTH_STRING_SECRET_NAME",
    f"{JOB_WORKER}WORKER_API_AUTH_STRING_SECRET_KEY",
    f"{JOB_WORKER}OBSERVER_NAMESPACES",
}
"""Those of prefect-kubernetes, which only images have; a test asks it where it is installed."""


def settings_read() -> set[str]:
    """Return the variables of ours, or of a server, that flows/settings.py reads."""
    source = (REPOSITORY / "flows" / "settings.py").read_text()
    read = set(re.findall(r'(?:environ\.get|_positive)\(\s*"([A-Z_]+)"', source))
    return read - OTHERS


def unknown_variables(
    environment: Mapping[str, str], command: Sequence[str], patch: pytest.MonkeyPatch
) -> set[str]:
    """Return the variables that nobody reads: misspelt, or of another version."""
    scripts = (INFRA / "postgres" / "databases.sh").read_text()
    known = (
        settings_read()
        | LIBPQ
        | OTHERS
        | JOB_WORKER_SETTINGS
        | _known_to_aws()
        | _known_to_prefect(environment, patch)
    )
    return {
        name
        for name in environment
        if name not in known
        and not _known_to_mlflow(name)
        and f"${{{name}:?}}" not in scripts
        and not any(f"$({name})" in argument for argument in command)
    }


def _known_to_prefect(environment: Mapping[str, str], patch: pytest.MonkeyPatch) -> set[str]:
    if not any(name.startswith("PREFECT_") for name in environment):
        return set()
    from prefect.settings import Settings

    with patch.context() as inside:
        for name, value in environment.items():
            if name.startswith("PREFECT_"):
                inside.setenv(name, value)
        return set(Settings().to_environment_variables(exclude_unset=True))


def _known_to_mlflow(name: str) -> bool:
    from mlflow import environment_variables

    return hasattr(environment_variables, name)


def _known_to_aws() -> set[str]:
    from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES
    from botocore.credentials import EnvProvider

    names = {EnvProvider.ACCESS_KEY, EnvProvider.SECRET_KEY, "AWS_ENDPOINT_URL"}
    for entry in BOTOCORE_DEFAUT_SESSION_VARIABLES.values():
        names |= {entry[1]} if isinstance(entry[1], str) else set(entry[1] or ())
    return names


def complaint(command: Sequence[str]) -> str | None:
    """Return what is wrong with a command line, parsed by the program's own parser but not run."""
    program, *arguments = command
    if program == "sh":
        steps = [shlex.split(step) for step in arguments[1].split("&&")]
        return next((found for step in steps if (found := complaint(step))), None)
    if program == "exec":
        return complaint(arguments)
    return PARSERS[program](arguments) if program in PARSERS else f"{program} is not known here"


def _lsm(arguments: Sequence[str]) -> str | None:
    from flows.cli.main import parser

    try:
        parser().parse_args(arguments)
    except SystemExit as ended:
        return f"lsm {shlex.join(arguments)} ends with {ended.code}" if ended.code else None
    return None


def _prefect(arguments: Sequence[str]) -> str | None:
    from cyclopts import CycloptsError
    from prefect.cli._app import _app as app

    # Options before the command are the outer program's.
    tokens = [argument for argument in arguments if argument != "--no-prompt"]
    try:
        app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return str(error)
    return None


def _mlflow(arguments: Sequence[str]) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns of types of its own when it is imported
        from mlflow.cli import cli

    return _clicked(cli.commands.get(arguments[0]), arguments)


def _dask(arguments: Sequence[str]) -> str | None:
    from distributed.cli import dask_scheduler, dask_worker

    programs = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    return _clicked(programs.get(arguments[0]), arguments)


def _clicked(program: object, arguments: Sequence[str]) -> str | None:
    import click

    if not isinstance(program, click.Command):
        return f"there is no command {arguments[0]!r}"
    try:
        program.make_context(arguments[0], list(arguments[1:]))
    except click.UsageError as error:
        return str(error)
    return None


def _foreign(_arguments: Sequence[str]) -> None:
    """Accept a program of someone else's image."""
    return


PARSERS = {
    "lsm": _lsm,
    "prefect": _prefect,
    "mlflow": _mlflow,
    "dask": _dask,
    "mkdir": _foreign,
    "rclone": _foreign,
}
