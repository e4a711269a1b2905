"""What infra/README.md and SECURITY.md say is so."""

import inspect
import re
import shlex
from math import prod
from pathlib import Path
from uuid import UUID

import pytest
import yaml

import flows.errors
import storage.errors
from flows.settings import MLFLOW_PORT, PREFECT_PORT
from lsm_core.experiments.protocols import PROTOCOLS
from storage.errors import StorageError
from tests.infra.known_names import PARSERS, complaint
from tests.infra.manifests import INFRA, OVERLAYS, REPOSITORY, compose, pod_specs

PAGE = (INFRA / "README.md").read_text()
PROGRAMS = ("lsm", "prefect", "mlflow", "dask")
SECURITY = (REPOSITORY / "SECURITY.md").read_text()


def section(title: str) -> str:
    """Return the text below a heading."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def commands() -> list[list[str]]:
    """Return the command lines in code blocks, without what carries them into a container."""
    lines = [
        line.strip()
        for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
        for line in block.splitlines()
    ]
    lines = [re.sub(r" ID\b", f" {UUID(int=0)}", line) for line in lines]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def ours(words: list[str]) -> list[str]:
    """Return the part of a command line from a program of ours on; none if it has no such."""
    if words[0] in PROGRAMS:
        return words
    carried = words[:2] == ["docker", "compose"] and {"exec", "run"} & set(words)
    # A service may have a program's name and comes before the program, so the last one counts.
    starts = [i for i, word in enumerate(words) if carried and word in PROGRAMS]
    return words[starts[-1] :] if starts else []


def test_commands_on_the_page_exist(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = [found for words in commands() if len(found := ours(words)) > 1]
    assert len(parsed) >= 8
    for command in parsed:
        assert complaint(command) is None, command
    capsys.readouterr()
    assert complaint(["lsm", "stack", "upp"])
    capsys.readouterr()


def test_commands_in_sentences_exist(capsys: pytest.CaptureFixture[str]) -> None:
    quoted = re.findall(r"`((?:lsm|prefect) [^`]+)`", PAGE)
    assert "lsm study efficiency" in quoted
    for command in quoted:
        if command == "lsm prepare":  # with the arguments that were given before
            continue
        words = shlex.split(command.replace(" ID", f" {UUID(int=0)}"))
        assert complaint(words) is None, command
    capsys.readouterr()
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"`make ([a-z-]+)`", PAGE + SECURITY):
        assert f"\n{target}:" in makefile, target


def test_services_that_are_named_exist() -> None:
    services = set(compose()["services"])
    for words in commands():
        joined = " ".join(words)
        if not joined.startswith(("docker compose", "$compose")):
            continue
        after = re.search(
            r" (?:stop|exec --no-TTY|exec|logs --tail=50|run --rm|--env \S+) ((?:[a-z-]+ ?)+)",
            joined,
        )
        if after:
            first, *others = after[1].split()
            named = {first, *others} if " stop " in joined else {first}
            assert named <= services, joined


def test_workloads_that_are_named_exist() -> None:
    base = [
        declared
        for path in (INFRA / "kubernetes" / "base").glob("*.yaml")
        for declared in yaml.safe_load_all(path.read_text())
    ]
    known = {
        f"{each['kind'].lower()}/{each['metadata']['name']}"
        for each in base
        if "kind" in each and "metadata" in each
    }
    named = re.findall(r"\b(?:deployment|statefulset|job|service)/[a-z-]+", PAGE)
    assert (
        {"statefulset/postgres", "deployment/control-worker", "deployment/cell-worker"}
        <= set(named)
        <= known
    )
    carried = re.findall(r"exec (?:--stdin )?deployment/([a-z-]+) -- tar .* -C (\S+)", PAGE)
    assert len(carried) == 4
    for name, folder in carried:
        text = (INFRA / "kubernetes" / "base" / f"{name}.yaml").read_text()
        assert f"{{name: state, mountPath: {folder}}}" in text


def test_files_that_are_named_exist() -> None:
    text = PAGE + SECURITY
    for path in re.findall(r"\b((?:infra|tests|lsm_core|storage|flows)/[\w./-]+\w)", text):
        if path != "infra/.env":
            assert (REPOSITORY / path).exists(), path
    for name in re.findall(
        r"^\| `([\w./]+)`(?:, `([\w.]+)`)? \|", section_before("What runs where"), re.M
    ):
        for each in filter(None, name):
            assert (INFRA / each).exists(), each


def test_the_lines_for_aws_name_every_secret_and_every_role() -> None:
    (block,) = (
        each
        for each in re.findall(r"```sh\n(.*?)```", section("Start"), re.DOTALL)
        if "rollout restart" in each
    )
    terraform = {path.name: path.read_text() for path in (INFRA / "terraform").glob("*.tf")}
    copied, accounts = re.findall(r"^for \w+ in (.+); do$", block, re.M)
    secrets = re.findall(r'^ +"([A-Z_]+)",$', terraform["secrets.tf"], re.M)
    assert sorted(copied.split()) == sorted(secrets)
    # With a database elsewhere, nobody needs the password of the superuser.
    needed = re.findall(r"key: (\w+)\}", "".join(map(str, _manifests())))
    assert set(needed) == {*secrets, "POSTGRES_PASSWORD"}
    folders = re.search(r"folders = \{(.*?)\}", terraform["roles.tf"], re.DOTALL)
    assert folders
    assert accounts.split() == re.findall(r"(\w+) = ", folders[1])
    restarted = re.findall(r" deployment/([a-z-]+)", block)
    base = {path.stem for path in (INFRA / "kubernetes" / "base").iterdir()} - {"deploy"}
    assert set(restarted) == {
        name
        for name, spec in pod_specs()
        if name in base and spec["serviceAccountName"] in accounts.split()
    }
    for output in re.findall(r"\$output -\w+ (\w+)", block):
        assert f'output "{output}"' in terraform["outputs.tf"]


def _manifests() -> list[str]:
    return [path.read_text() for path in (INFRA / "kubernetes").rglob("*.yaml")]


def section_before(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[0]


def test_ports_and_overlays_are_those_of_the_manifests() -> None:
    table = section("What runs where")
    assert f"| Prefect server | {PREFECT_PORT} |" in table
    assert f"| MLflow server | {MLFLOW_PORT} |" in table
    assert set(re.findall(r"^\| `([\w-]+)` \|", section("Start"), re.M)) == set(OVERLAYS)
    assert {path.name for path in (INFRA / "kubernetes" / "overlays").iterdir()} == set(OVERLAYS)


def test_every_error_has_a_line() -> None:
    alarms = section("When an alarm rings")
    for module in (storage.errors, flows.errors):
        for name, value in inspect.getmembers(module, inspect.isclass):
            if value.__module__ == module.__name__ and value is not StorageError:
                assert f"`{name}`" in alarms, f"infra/README.md says nothing of {name}"


def sizing() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section("Sizing"), re.M)
    return {name: cells.split(" | ") for name, cells in rows}


def test_the_sizes_of_data_are_those_of_the_plans() -> None:
    assert set(sizing()) == set(PROTOCOLS)
    total = 0.0
    for name, (samples, megabytes, *_) in sizing().items():
        plan = PROTOCOLS[name].published
        n_samples = sum(plan.split_sizes.values())
        bytes_each = 4 * sum(prod(variable.shape) for variable in plan.benchmark.variables)
        assert int(samples) == n_samples, name
        assert float(megabytes) == pytest.approx(n_samples * bytes_each / 1e6, abs=0.5), name
        total += n_samples * bytes_each / 1e6
    assert re.search(r"^\| all \| \| (\d+) ", section("Sizing"), re.M)[1] == f"{total:.0f}"


@pytest.mark.slow
def test_the_counts_of_parameters_are_those_of_the_models() -> None:
    from lsm_core.evaluation.cost import count_parameters
    from lsm_core.experiments.presets import experiment
    from lsm_core.surrogates.operator import build_operator

    for name, (_, _, millions, *_) in sizing().items():
        cell = experiment("paper", name, "lsm")
        model = build_operator(cell.model, cell.data.benchmark)
        assert float(millions) == pytest.approx(count_parameters(model) / 1e6, abs=0.05), name


def test_the_hours_follow_from_what_the_page_assumes() -> None:
    hours = {}
    for name, (_, _, _, forward, _, stated) in sizing().items():
        plan = PROTOCOLS[name].published
        n_steps = plan.benchmark.n_steps
        work = 3 * float(forward.split(",")[0]) * 1e9 * n_steps * plan.n_train * 500
        applications = plan.n_train / 20 * 500 * n_steps
        hours[name] = max(work / 2e12, 0.030 * applications) / 3600
        assert float(stated) == pytest.approx(hours[name], abs=0.1), name
    assert sum(hours.values()) == pytest.approx(12, abs=0.5)
    assert sum(hours.values()) * 15 / 24 == pytest.approx(7.6, abs=0.2)
    assert sum(hours.values()) * 15 / 8 == pytest.approx(23, abs=0.5)


def test_schemes_and_variables_of_the_security_page_are_real() -> None:
    assert "PREFECT_SERVER_API_AUTH_STRING" in (INFRA / "compose.yaml").read_text()
    for variable in re.findall(r"`((?:MLFLOW|PREFECT|AWS)_[A-Z_]+)", SECURITY):
        set_here = (INFRA / "compose.yaml").read_text() + (INFRA / "images/Dockerfile").read_text()
        assert variable in set_here, variable
    assert Path(REPOSITORY / "storage" / "location.py").read_text().count("SCHEMES") >= 2
    assert set(PARSERS) >= {"lsm", "prefect", "mlflow"}


def test_no_source_runs_code_that_a_file_brings() -> None:
    # A process's own errors are copied by pickle, in memory; no file is read so.
    runs_code = (
        r"load_model\(|allow_pickle=True|weights_only=False|pickle\.load\(|import (joblib|dill)"
    )
    for package in ("lsm_core", "storage", "flows"):
        for path in (REPOSITORY / package).rglob("*.py"):
            text = path.read_text()
            if path.name == "following.py":  # part of MLflow's own server, of which the page tells
                assert "also for `lsm serve`" in SECURITY
                text = text.replace("mlflow.pyfunc.load_model(", "")
            assert not re.search(runs_code, text), path
            assert text.count("torch.load(") == text.count("weights_only=True"), path
    assert "LSM does not run the code that such a folder carries" in SECURITY


def test_the_page_names_the_variables_that_commands_set() -> None:
    from flows.cli.main import TELEMETRY_OFF

    for name in TELEMETRY_OFF:
        assert f"`{name}" in SECURITY
