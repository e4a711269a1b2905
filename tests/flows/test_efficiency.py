from pathlib import Path

from flows.progress import LineProgress
from flows.steps.efficiency import log_efficiency, measure_efficiency
from flows.steps.training import open_tracking
from storage.location import Location


def test_costs_are_measured_and_logged(tmp_path: Path) -> None:
    lines: list[str] = []
    costs = measure_efficiency(["fno"], [16, 32], n_threads=1, progress=LineProgress(lines.append))
    assert [cost["size"] for cost in costs] == [16, 32]
    assert costs[1]["forward_flops"] > 2 * costs[0]["forward_flops"]
    assert {cost["n_parameters"] for cost in costs} == {2_368_001}
    assert lines[-1] == "measure: 2 of 2"
    root, uri = Location.parse(str(tmp_path)), f"sqlite:///{tmp_path}/mlflow.db"
    log_efficiency(costs, uri, root)
    tracking = open_tracking(uri, root, "efficiency")
    (run,) = tracking.client.search_runs([tracking.experiment_id])
    history = tracking.client.get_metric_history(run.info.run_id, "cost/forward_flops")
    assert {metric.step: metric.value for metric in history} == {
        cost["size"]: cost["forward_flops"] for cost in costs
    }
