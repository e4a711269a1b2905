"""One experiment, from the store to a result, killed and resumed."""

import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.services import free_port
from flows.steps import datasets, machine_load, training
from flows.steps.cells import cell, failed, is_finished
from flows.steps.report import write_report
from flows.steps.stored_results import benchmark_results
from flows.steps.training import Workplace
from lsm_core.experiments.experiment import Experiment
from storage.location import Location


def experiment(model: str = "lsm") -> Experiment:
    made = cell("smoke", "burgers", model, 0)
    benchmark = replace(made.data.benchmark, resolution=32, solver_points=64, solver_steps=20)
    return replace(made, data=replace(made.data, benchmark=benchmark))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def workplace(folder: Path, store: str) -> Workplace:
    root = Location.parse(str(folder / store))
    plan = experiment().data
    for index in datasets.begin(plan, root):
        datasets.generate_block(plan, root, index)
    return Workplace(
        root=root,
        dataset=datasets.finish(plan, root).location,
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
        suite="tests",
        n_threads=1,
    )


class Killed(BaseException):
    pass


def train(place: Workplace, kill_after: int | None = None, model: str = "lsm") -> dict[str, Any]:
    def report(message: dict[str, Any]) -> None:
        if message["done"] == kill_after:
            raise Killed

    return training.train(experiment(model), place, report)


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    times = ("seconds_per_epoch", "finished", "history", "peak_bytes")
    kept = {name: value for name, value in result.items() if name not in times}
    measured = ("seconds", "samples_per_second", "peak_bytes")
    history = [
        {k: v for k, v in record.items() if k not in measured} for record in result["history"]
    ]
    return {**kept, "history": history}


def test_a_killed_run_resumes_to_the_same_result_and_weights(folder: Path) -> None:
    straight, broken = workplace(folder, "straight"), workplace(folder, "broken")
    expected = train(replace(straight, tracking_uri=f"sqlite:///{folder}/other.db"))
    for kill_after in (1, 3):
        with pytest.raises(Killed):
            train(broken, kill_after)
    assert not is_finished(experiment(), broken)
    result = train(broken)
    assert comparable(result) == comparable(expected)
    weights = [place.checkpoints(experiment()).latest() for place in (straight, broken)]
    assert _model_part(weights[0]) == _model_part(weights[1])
    run = broken.tracking().client.search_runs(["1"])[0]
    steps = broken.tracking().client.get_metric_history(run.info.run_id, "train/rel_l2")
    assert [metric.step for metric in steps] == [1, 2, 3, 4]
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test/rel_l2"] == pytest.approx(result["test"]["rel_l2"])


def test_a_run_that_goes_on_on_another_machine_has_all_its_epochs(folder: Path) -> None:
    place = workplace(folder, "moved")
    nobody = replace(place, tracking_uri=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Killed):
        train(nobody, kill_after=4)
    shutil.rmtree(str(folder / "moved" / "journal"))  # what nobody took went with the machine
    elsewhere = replace(place, tracking_uri=f"sqlite:///{folder}/moved.db")
    train(elsewhere)
    client = elsewhere.tracking().client
    (run,) = client.search_runs(["1"])
    steps = client.get_metric_history(run.info.run_id, "train/rel_l2")
    assert [metric.step for metric in steps] == [1, 2, 3, 4]


def _model_part(content: bytes | None) -> dict[str, list[float]]:
    from safetensors.torch import load

    assert content is not None
    tensors = load(content)
    return {k: v.flatten().tolist() for k, v in tensors.items() if k.startswith("model.")}


def test_a_finished_run_is_not_trained_again_but_logged_where_it_is_missing(folder: Path) -> None:
    place = workplace(folder, "again")
    first = train(place, model="fno")
    fresh = replace(place, tracking_uri=f"sqlite:///{folder}/fresh.db")
    second = training.train(experiment("fno"), fresh, report=_never)
    assert second == first
    (run,) = fresh.tracking().client.search_runs(["1"])
    assert run.data.tags["model"] == "fno"
    assert len(fresh.tracking().client.get_metric_history(run.info.run_id, "train/rel_l2")) == 4


def test_a_short_run_records_the_load_of_its_machine_and_a_resumed_one_goes_on(
    folder: Path,
) -> None:
    place = replace(workplace(folder, "load"), tracking_uri=f"sqlite:///{folder}/load.db")
    with pytest.raises(Killed):
        train(place, kill_after=1, model="fno")
    time.sleep(1.1)  # a step is a second
    train(place, model="fno")
    client = place.tracking().client
    (run,) = client.search_runs(["1"])
    assert 0 <= run.data.metrics["system/cpu_utilization_percentage"] <= 100
    assert run.data.metrics["system/process_memory_usage_megabytes"] > 10
    memory = client.get_metric_history(run.info.run_id, "system/system_memory_usage_megabytes")
    assert len(memory) >= 2
    assert len({metric.step for metric in memory}) == len(memory)
    assert not any(thread.name == "machine load" for thread in threading.enumerate())


def test_a_machine_that_does_not_tell_its_load_trains_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise PermissionError("no /proc here")

    monkeypatch.setattr(machine_load.psutil, "virtual_memory", refuse)
    place = workplace(folder, "silent")
    assert train(place, model="fno")["epochs"] == 4


def test_a_run_that_fails_is_told_as_failed_and_another_try_finishes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = replace(workplace(folder, "fails"), tracking_uri=f"sqlite:///{folder}/fails.db")
    client = place.tracking().client

    def out_of_memory(*_: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(training, "showcase_arrays", out_of_memory)
        with pytest.raises(MemoryError):
            train(place, model="fno")
    assert [run.info.status for run in client.search_runs(["1"])] == ["FAILED"]
    train(place, model="fno")
    assert [run.info.status for run in client.search_runs(["1"])] == ["FINISHED"]


def _never(message: dict[str, Any]) -> None:
    raise AssertionError(f"trained again: {message}")


def test_the_report_shows_results_and_failures(folder: Path) -> None:
    place = workplace(folder, "report")
    results = [train(place), failed(experiment("fno"), RuntimeError("no <memory>"))]
    report = write_report(results, place.root)
    page = report.page.read_bytes().decode()
    assert "no &lt;memory&gt;" in page
    assert page.count("<svg") == 5
    assert "failed" in report.markdown
    assert [r["identity"] for r in benchmark_results(place.root, "smoke")] == [
        results[0]["identity"]
    ]
    assert benchmark_results(place.root, "quick") == []


def test_results_say_what_they_rest_on(folder: Path) -> None:
    result = train(workplace(folder, "facts"))
    assert result["dataset"]["digest"] != result["code"]
    assert result["environment"]["torch"] == torch.__version__.partition("+")[0] or result[
        "environment"
    ]["torch"].startswith("2.")
    assert 0.5 < result["mean_prediction"] < 1.5
    assert result["parameters"] == 18_057
