"""Flow `retrain`: new data, a challenger started from the champion, and the better one stays."""

from typing import Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import CellsFailed
from flows.matrix import run_cells
from flows.settings import Settings
from flows.tasks import at_most
from lsm_core.names import BenchmarkName


# One at a time: two would both start from the same champion. The deployment's limit sees to it.
@flow(name="retrain", flow_run_name="retrain-{benchmark}", task_runner=at_most(1))
def retrain(
    benchmark: BenchmarkName, n_new: int = 64, level: float = 0.01, least_gain: float = 0.01
) -> dict[str, Any]:
    """Train a challenger on `n_new` more samples and promote it if it is better; return why.

    Better is a mean error on the locked test samples that is lower by `least_gain`, as a part of
    the champion's, with a paired test at `level`. Whatever fails leaves the champion in place.
    """
    from flows.steps.cells import bound
    from flows.steps.datasets import location_of
    from flows.steps.registration import register_run
    from flows.steps.retraining import challenger_experiment, judge
    from lsm_core.evaluation.promotion import PromotionRule

    settings = Settings.from_environment()
    settings.require_usable()
    root, uri = settings.root, settings.tracking_uri
    rule = PromotionRule(level=level, least_gain=least_gain)
    experiment = bound(challenger_experiment(benchmark, n_new, root, uri))
    (result,) = run_cells([experiment], settings, "retrain", settings.n_workers)
    if "error" in result:
        raise CellsFailed(f"the champion stays, its challenger failed with {result['error']}")
    register_run(experiment.identity, root, uri, alias="challenger")
    verdict = judge(benchmark, location_of(experiment.data, root), uri, rule)
    create_markdown_artifact(_page(verdict), key=f"retrain-{benchmark.replace('_', '-')}")
    return verdict


def _page(verdict: dict[str, Any]) -> str:
    """Return the verdict as Markdown."""
    versions = f"version {verdict['challenger']} against version {verdict['champion']}"
    what = "promoted" if verdict["promoted"] else "kept as it was"
    return f"**{verdict['model']}**, {versions}: {what}.\n\n{verdict['reason']}\n"
