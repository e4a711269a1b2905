"""One experiment, from the store to a result, killed and resumed."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flows.engine.own_server import free_port
from flows.steps.reports.page import write_report
from flows.steps.reports.results import Comparison, keep_outcomes, read_outcomes
from flows.steps.training import run as training
from flows.steps.training.cells import bind, failed
from flows.steps.training.workplace import Workplace
from lsm_core.experiments import presets
from lsm_core.experiments.experiment import BoundExperiment, Experiment
from lsm_core.result import Result
from storage.location import Location
from storage.tracking import store
from tests.flows.steps.data.generation import generated


def experiment(model: str = "lsm", **training: Any) -> BoundExperiment:
    made = presets.experiment("smoke", "burgers", model)
    benchmark = replace(made.data.benchmark, resolution=32, solver_points=64, solver_steps=20)
    data, config = replace(made.data, benchmark=benchmark), replace(made.training, **training)
    return bind(replace(made, data=data, training=config))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def workplace(folder: Path, store: str) -> Workplace:
    root = Location.parse(str(folder / store))
    plan = experiment().data
    return Workplace(
        root=root,
        dataset=generated(plan, root).location,
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
        study="benchmark",
        n_threads=1,
    )


class Killed(BaseException):
    pass


def train(place: Workplace, kill_after: int | None = None, model: str = "lsm") -> Result:
    def report(message: dict[str, Any]) -> None:
        if message["done"] == kill_after:
            raise Killed

    return training.train(experiment(model), place, report)


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def comparable(result: Result) -> Result:
    """Return a result without what a clock and the machine say."""
    untimed = {"seconds": 0.0, "samples_per_second": 0.0, "peak_bytes": 0, "at": None}
    history = tuple(replace(epoch, **untimed) for epoch in result.history)
    return replace(result, seconds_per_epoch=0.0, peak_bytes=0, finished="", history=history)


def test_a_killed_run_resumes_to_the_same_result_and_weights(folder: Path) -> None:
    straight, broken = workplace(folder, "straight"), workplace(folder, "broken")
    expected = train(replace(straight, tracking_uri=f"sqlite:///{folder}/other.db"))
    for kill_after in (1, 3):
        with pytest.raises(Killed):
            train(broken, kill_after)
    assert broken.checkpoints(experiment().identity).result() is None
    result = train(broken)
    assert comparable(result) == comparable(expected)
    weights = [place.checkpoints(experiment().identity).latest() for place in (straight, broken)]
    assert _model_part(weights[0]) == _model_part(weights[1])
    run = broken.tracking().client.search_runs(["1"])[0]
    steps = broken.tracking().client.get_metric_history(run.info.run_id, "train/rel_l2")
    assert [metric.step for metric in steps] == [1, 2, 3, 4]
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test/rel_l2"] == pytest.approx(result.error)


def test_a_run_that_goes_on_on_another_machine_has_all_its_epochs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = workplace(folder, "moved")
    monkeypatch.setattr(store, "PATIENCE", 0.5)  # nobody will answer
    nobody = replace(place, tracking_uri=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Killed):
        train(nobody, kill_after=4)
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
    train(place, model="fno")
    client = place.tracking().client
    (run,) = client.search_runs(["1"])
    assert 0 <= run.data.metrics["system/cpu_utilization_percentage"] <= 100
    assert run.data.metrics["system/system_memory_usage_megabytes"] > 10
    memory = client.get_metric_history(run.info.run_id, "system/system_memory_usage_megabytes")
    assert len(memory) >= 2
    assert len({metric.step for metric in memory}) == len(memory)
    assert not any(thread.name == "SystemMetricsMonitor" for thread in threading.enumerate())


def test_a_machine_that_does_not_tell_its_load_trains_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise PermissionError("no /proc here")

    monkeypatch.setattr("psutil.virtual_memory", refuse)
    place = workplace(folder, "silent")
    assert train(place, model="fno").epochs == 4


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
    (run,) = client.search_runs(["1"])
    assert run.info.status == "FAILED"
    # Where it failed is in the store and in MLflow.
    kept = place.checkpoints(experiment("fno").identity).location / "failure.txt"
    assert "in out_of_memory" in kept.read_bytes().decode()
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["failure.txt"]
    train(place, model="fno")
    assert [run.info.status for run in client.search_runs(["1"])] == ["FINISHED"]


def _never(message: dict[str, Any]) -> None:
    raise AssertionError(f"trained again: {message}")


def test_the_report_shows_results_and_failures(folder: Path) -> None:
    place = workplace(folder, "report")
    result = train(place)
    keep_outcomes(place.root, [failed(experiment("fno"), RuntimeError("no <memory>"), "benchmark")])
    report = write_report(place.root, "smoke")
    page = report.page.read_bytes().decode()
    assert "no &lt;memory&gt;" in page
    assert page.count("<svg") == 6
    assert "failed" in report.markdown
    outcomes = read_outcomes(place.root)
    found = [one.identity for one in outcomes.of_benchmark(Comparison("smoke"))]
    assert found == [experiment("fno").identity, result.identity]
    assert outcomes.of_benchmark(Comparison("quick")) == []


def test_results_say_what_they_rest_on(folder: Path) -> None:
    result = train(workplace(folder, "facts"))
    assert result.dataset.digest != result.code
    assert result.environment["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert result.mean_prediction is not None
    assert 0.5 < result.mean_prediction < 1.5
    assert result.parameters == 18_057
    assert result.suite == "benchmark-smoke"
    assert Experiment.from_plain(result.settings) == experiment().experiment
    now = time.time_ns() // 10**6
    assert all(epoch.at is not None and now - 10**6 < epoch.at <= now for epoch in result.history)
