from pathlib import Path

import pytest

from flows.progress import LineProgress
from flows.settings import Settings
from flows.steps import efficiency
from flows.steps.efficiency import measure_efficiency
from flows.steps.stored_results import stored_costs
from flows.steps.training import open_tracking


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LSM_STORE", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("LSM_WORKERS", "1")
    return Settings.from_environment()


def test_costs_are_measured_and_logged(settings: Settings) -> None:
    lines: list[str] = []
    costs = measure_efficiency(["fno"], [16, 32], settings, LineProgress(lines.append))
    assert [cost["size"] for cost in costs] == [16, 32]
    assert costs[1]["forward_flops"] > 2 * costs[0]["forward_flops"]
    assert {cost["n_parameters"] for cost in costs} == {2_368_001}
    assert lines[-1] == "measure: 2 of 2"
    tracking = open_tracking(settings.tracking_uri, settings.root, "efficiency")
    (run,) = tracking.client.search_runs([tracking.experiment_id])
    history = tracking.client.get_metric_history(run.info.run_id, "cost/forward_flops")
    assert {metric.step: metric.value for metric in history} == {
        cost["size"]: cost["forward_flops"] for cost in costs
    }


def test_what_was_measured_before_an_interruption_is_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure_one = efficiency.measure_one

    def interrupted_at_32(model, form, size):
        if size == 32:
            raise KeyboardInterrupt
        return measure_one(model, form, size)

    monkeypatch.setattr(efficiency, "measure_one", interrupted_at_32)
    with pytest.raises(KeyboardInterrupt):
        measure_efficiency(["fno"], [16, 32], settings, LineProgress(lambda line: None))
    assert [cost["size"] for cost in stored_costs(settings.root)] == [16]
