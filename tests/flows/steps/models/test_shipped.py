"""Models that come with the project are what they were when they were put into their files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows.cli.main import main
from flows.errors import BadInput
from flows.steps.models.packaging import trained_run
from flows.steps.models.shipped import (
    BOX,
    ENDING,
    LARGEST,
    open_shipped,
    shipped_card,
    shipped_example,
    shipped_names,
    unpack_shipped,
)
from lsm_core.benchmarks.variations import inputs_of
from storage.location import Location
from tests.measurements.strange_inputs import part_called_strange

NAMES = shipped_names()


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LSM_STORE", str(tmp_path / "store"))


def test_there_is_something_in_the_box() -> None:
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_makes_what_it_made(name: str) -> None:
    given, made = shipped_example(name)
    packaged = open_shipped(name)
    for field, values in packaged.predictor(given).items():
        scale = np.abs(made[field]).max()
        assert np.abs(values - made[field]).max() <= 1e-4 * scale
    assert packaged.trust is not None
    assert (BOX / f"{name}{ENDING}").stat().st_size <= LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_what_a_model_is_and_how_far_off(name: str) -> None:
    card = shipped_card(name)
    seen = card["held_out"]
    assert card["facts"]["benchmark"] == name
    assert len(card["facts"]["dataset"]) == 64
    assert 0 < seen["rel_l2"] < card["result"]["mean_prediction"]
    assert seen["observed_coverage"] == pytest.approx(seen["stated_coverage"], abs=0.1)
    assert card["fails"]
    assert card["trained_on"]


def test_a_prediction_needs_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = NAMES[0]
    given, made = shipped_example(name)
    np.savez(tmp_path / "given.npz", **given)
    assert main(["predict", name, "given.npz", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    kept = np.load(tmp_path / "given_predicted.npz")
    for field, values in made.items():
        assert np.abs(kept[field] - values).max() <= 1e-4 * np.abs(values).max()
    assert told["trust"]["expected_error"] == pytest.approx(kept["expected_error"].tolist())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: {}, "there is no variable"),
        (lambda given: {k: v * np.nan for k, v in given.items()}, "values of NaN or infinity"),
        (lambda given: {k: v[0, 0] for k, v in given.items()}, "axes, expected"),
    ],
)
def test_a_file_that_does_not_suit_is_refused_in_a_sentence(
    change, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, _ = shipped_example(NAMES[0])
    np.savez(tmp_path / "given.npz", other=np.zeros(3), **change(given))
    assert main(["predict", NAMES[0], "given.npz"]) == 2
    assert said in capsys.readouterr().err


def test_a_refusal_comes_before_torch_and_mlflow(tmp_path: Path) -> None:
    (tmp_path / "given.npz").write_bytes(b"no archive")
    program = (
        "import sys; from flows.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'mlflow', 'pandas', 'matplotlib', 'prefect'} & set(sys.modules); "
        "print(code, *sorted(heavy))"
    )
    command = [sys.executable, "-c", program, "predict", NAMES[0], "given.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"
    assert "given.npz" in done.stderr


def test_a_prediction_is_made_without_mlflow_and_the_compiler(tmp_path: Path) -> None:
    given, _ = shipped_example(NAMES[0])
    np.savez(tmp_path / "given.npz", **given)
    program = (
        "import sys; from flows.cli.main import main; code = main(sys.argv[1:]); "
        "heavy = {'mlflow', 'pandas', 'matplotlib', 'prefect', 'torch._dynamo'} & set(sys.modules);"
        "print(code, *sorted(heavy))"
    )
    command = [sys.executable, "-c", program, "predict", NAMES[0], "given.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "0"


def test_a_training_can_start_from_a_shipped_model(tmp_path: Path) -> None:
    root = Location.parse(str(tmp_path / "store"))
    name = NAMES[0]
    identity = unpack_shipped(f"{name}@shipped", root)
    assert unpack_shipped(f"{name}@shipped", root) == identity
    run = trained_run(str(identity), root)
    given, made = shipped_example(name)
    for field, values in run.predictor(given).items():
        assert np.abs(values - made[field]).max() <= 1e-4 * np.abs(made[field]).max()
    assert (run.result.study, run.result.setting) == ("train", "shipped")
    assert unpack_shipped("pipe", root) == "pipe"
    with pytest.raises(BadInput, match="no model of 'euler' comes with the project"):
        unpack_shipped("euler@shipped", root)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_new_seeds_are_predicted_as_the_card_says(name: str) -> None:
    packaged, seen = open_shipped(name), shipped_card(name)["held_out"]
    errors = []
    for seed in range(6_000_000, 6_000_050):
        truth = packaged.benchmark.generate(seed)
        given = {k: v[None] for k, v in inputs_of(packaged.benchmark, seed).items()}
        guess = {k: v[0] for k, v in packaged.predictor(given).items()}
        wrong = np.sqrt(sum(np.square(guess[k] - truth[k]).sum() for k in guess))
        errors.append(wrong / np.sqrt(sum(np.square(truth[k]).sum() for k in guess)))
    noise = seen["rel_l2_deviation"] * (1 / 50 + 1 / seen["samples"]) ** 0.5
    assert np.mean(errors) == pytest.approx(seen["rel_l2"], abs=4 * noise)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_few_samples_like_those_of_training_are_called_strange(name: str) -> None:
    assert part_called_strange(open_shipped(name), {}, 300) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("airfoil", {"displacement_range": 0.1}),
        ("burgers", {"viscosity": 0.01}),
        ("darcy", {"high_coefficient": 24.0}),
        ("darcy", {"high_coefficient": 6.0}),
        ("pipe", {"centreline_range": 2.0}),
    ],
)
def test_most_samples_of_another_problem_are_called_strange(
    name: str, changes: dict[str, float]
) -> None:
    """Bent twice as far, of another contrast, of a tenth of the viscosity if the file says so."""
    assert part_called_strange(open_shipped(name), changes, 300) >= 0.8
