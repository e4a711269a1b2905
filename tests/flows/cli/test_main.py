"""The command line: bad input gets one sentence and exit code 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli.main import main
from flows.errors import BadInput
from flows.settings import Settings


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "store"))
    for name in ("MLFLOW_TRACKING_URI", "LSM_DASK", "LSM_WORKERS", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prepare", "euler"], "invalid choice: 'euler' (choose from"),
        (["train", "transformer", "burgers"], "invalid choice: 'transformer'"),
        (["train", "lsm", "burgers", "--preset", "huge"], "invalid choice: 'huge'"),
        (["train", "lsm", "burgers", "--seed", "one"], "a seed is a whole number from 0"),
        (["benchmark", "--seeds", "0", "-1"], "a seed is a whole number from 0"),
        (["prepare", "darcy", "--resolution", "many"], "a whole number from 1 is expected"),
        (["prepare", "pipe", "--resolution", "64"], "pipe has one resolution"),
        (["prepare", "burgers", "--resolution", "100"], "resolution must divide 8192"),
        (["report", "data"], "no dataset of preset quick"),
        (["prepare"], "name the benchmarks to prepare, or say --all"),
        (["prepare", "burgers", "--store", "ftp://there"], "starts with ftp://"),
        (["report"], "there are no results to report"),
        (["board"], "there are no runs to compare"),
        (["stack", "up"], "no prefect.yaml in this folder"),
        ([], "arguments are required: COMMAND"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    output = capsys.readouterr()
    assert code == 2
    assert said in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_root_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["prepare", "burgers", "--store", str(tmp_path / "file")]) == 2
    assert "cannot write in the store" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["prepare", "burgers"], pytest.param(["train", "fno", "burgers"], marks=pytest.mark.slow)],
)
def test_a_store_that_is_none_is_said_and_left_alone(tmp_path: Path, command: list[str]) -> None:
    from flows.steps.data import datasets
    from lsm_core.experiments.protocols import data_plan

    settings = Settings.from_environment()
    place = datasets.location_of(data_plan("smoke", "burgers"), settings.root)
    (place / "thesis.tex").write_bytes(b"years of work")
    done = run_command(*command, "--preset", "smoke")
    assert done.returncode == 2
    assert "is not a dataset of this program: it holds thesis.tex" in done.stderr
    assert "Traceback" not in done.stderr
    assert (place / "thesis.tex").read_bytes() == b"years of work"
    # `prepare` sees it before it starts a server; a training is told of it by its flow.
    assert (tmp_path / "store" / "prefect").exists() == (command[0] == "train")


def test_data_that_is_there_is_named_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from flows.steps.data.datasets import plan_generation
    from lsm_core.experiments.protocols import data_plan

    job = plan_generation(data_plan("smoke", "burgers"), Settings.from_environment().root)
    for index in job.begin():
        job.generate_block(index)
    job.finish()
    assert main(["prepare", "burgers", "--preset", "smoke", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"burgers": job.location.url}
    assert not (tmp_path / "store" / "prefect").exists()


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user does."""
    repository = str(Path(__file__).parents[3])
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        env={**os.environ, "PYTHONPATH": repository},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_a_setting_of_the_wrong_type_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_WORKERS", value)
    with pytest.raises(BadInput, match=f"LSM_WORKERS must be a whole number.*{value}"):
        Settings.from_environment()


def test_the_default_settings_stay_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LSM_STORE")
    settings = Settings.from_environment()
    assert settings.root.local_path == tmp_path / ".lsm"
    assert settings.tracking_uri == f"sqlite:///{tmp_path}/.lsm/mlflow.db"
    assert not (tmp_path / ".lsm").exists()


def test_list_shows_names_and_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)
    assert "burgers" in names["benchmarks"]
    assert "lsm" in names["models"]
    assert main(["list", "burgers"]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from flows.cli.main import parser; parser().format_help();"
        "print([m for m in ('torch', 'prefect', 'mlflow', 'zarr', 'numpy') if m in sys.modules])"
    )
    repository = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": repository},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
