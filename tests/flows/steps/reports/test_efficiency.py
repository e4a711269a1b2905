from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.engine.progress import LineProgress
from flows.errors import BadInput
from flows.settings import Settings
from flows.steps.reports import efficiency
from flows.steps.reports.efficiency import measure_efficiency
from flows.steps.reports.results import keep_cost, stored_costs
from lsm_core.reporting.efficiency import Cost
from lsm_core.reporting.published_results import efficiency_models, efficiency_sizes
from storage.tracking.store import open_tracking

SILENT = LineProgress(lambda line: None)
FIGURES: dict[str, Any] = {
    "n_parameters": 1,
    "forward_flops": 2,
    "saved_bytes": 3,
    "peak_bytes": 4,
    "step_seconds": 0.5,
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("LSM_WORKERS", "1")
    return Settings.from_environment()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Return what is measured from now on, of which nothing really is."""
    asked = []

    def pretend(model: str, form: str, size: int, *machine: Any) -> dict[str, Any]:
        asked.append((model, form, size))
        return FIGURES

    monkeypatch.setattr(efficiency, "measure_apart", pretend)
    monkeypatch.setattr(efficiency, "log_efficiency", lambda *_: None)
    return asked


def test_costs_are_measured_and_logged(settings: Settings) -> None:
    lines: list[str] = []
    costs, failed = measure_efficiency(["fno"], [32, 16], settings, LineProgress(lines.append))
    assert [cost.size for cost in costs] == [16, 32]
    assert costs[1].forward_flops > 2 * costs[0].forward_flops
    assert {cost.n_parameters for cost in costs} == {2_368_001}
    assert lines[-1] == "measure: 2 of 2"
    assert failed == []
    assert logged_flops(settings) == {(cost.size, cost.forward_flops) for cost in costs}


def test_what_is_measured_again_or_smaller_than_before_reaches_mlflow(settings: Settings) -> None:
    first = Cost(
        model="fno", form="release", size=32, measured="2026-01-01T00:00:00+00:00", **FIGURES
    )
    again = replace(first, measured="2026-01-02T00:00:00+00:00", forward_flops=7)
    smaller = replace(first, size=16, forward_flops=1)
    for cost in (first, again, smaller):
        efficiency.log_efficiency(cost, settings.tracking_uri, settings.root)
    assert logged_flops(settings) == {(32, 2), (32, 7), (16, 1)}


def logged_flops(settings: Settings) -> set[tuple[int, float]]:
    """Return all that MLflow has, by size."""
    tracking = open_tracking(settings.tracking_uri, settings.root, "efficiency")
    runs = tracking.client.search_runs([tracking.experiment_id])
    name = "cost/forward_flops"
    return {
        (metric.step, metric.value)
        for run in runs
        for metric in tracking.client.get_metric_history(run.info.run_id, name)
    }


def test_what_was_measured_before_an_interruption_is_kept(
    settings: Settings, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = efficiency.measure_apart

    def interrupted_at_32(model: Any, form: str, size: int, *machine: Any) -> dict[str, Any]:
        if size == 32:
            raise KeyboardInterrupt
        return pretend(model, form, size, *machine)

    monkeypatch.setattr(efficiency, "measure_apart", interrupted_at_32)
    with pytest.raises(KeyboardInterrupt):
        measure_efficiency(["fno"], [16, 32], settings, SILENT)
    assert [cost.size for cost in stored_costs(settings.root)] == [16]


def test_the_papers_table_is_measured_if_nothing_is_named(
    settings: Settings, measured: list[Any]
) -> None:
    measure_efficiency(None, None, settings, SILENT)
    assert {model for model, _, _ in measured} == set(efficiency_models())
    assert {size for _, _, size in measured} == set(efficiency_sizes())
    assert len(measured) == 11 * 5


def test_what_was_measured_on_this_machine_is_not_measured_again(
    settings: Settings, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = measure_efficiency(["fno"], [16], settings, SILENT)
    assert measure_efficiency(["fno"], [16, 32], settings, SILENT)[0][:1] == first
    assert measured == [("fno", "release", 16), ("fno", "release", 32)]
    monkeypatch.setattr(efficiency, "machine_name", lambda *_: "another")
    measure_efficiency(["fno"], [16], settings, SILENT)
    assert len(measured) == 3
    assert len(stored_costs(settings.root)) == 3


def test_costs_of_other_sources_are_measured_again(settings: Settings, measured: list[Any]) -> None:
    (cost,), _ = measure_efficiency(["fno"], [16], settings, SILENT)
    keep_cost(settings.root, replace(cost, code="older"))
    measure_efficiency(["fno"], [16], settings, SILENT)
    assert len(measured) == 2
    assert [kept.code for kept in stored_costs(settings.root)] == [cost.code]


def test_a_model_that_fails_does_not_stop_the_others_and_is_named(
    settings: Settings, measured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = efficiency.measure_apart

    def too_large(model: Any, form: str, size: int, *machine: Any) -> dict[str, Any]:
        if model == "unet":
            raise MemoryError("not enough")
        return pretend(model, form, size, *machine)

    monkeypatch.setattr(efficiency, "measure_apart", too_large)
    costs, failed = measure_efficiency(["unet", "fno"], [16], settings, SILENT)
    assert failed == ["unet (release) at 16 x 16: MemoryError: not enough"]
    assert [cost.model for cost in costs] == ["fno"]
    assert stored_costs(settings.root) == costs


def test_a_model_of_time_steps_is_refused_before_anything_is_measured(
    settings: Settings, measured: list[Any]
) -> None:
    with pytest.raises(BadInput, match="a history of frames is needed by tfnet and kno"):
        measure_efficiency(["fno", "tfnet", "kno"], [16], settings, SILENT)
    assert measured == []
