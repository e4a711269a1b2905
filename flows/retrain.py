"""Flow `retrain`: new data, a challenger started from the champion, and the better one stays."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.errors import BadInput, CellsFailed
from flows.matrix import run_cells
from flows.parameters import Gain, Level, Positive
from flows.settings import Settings
from flows.tasks import at_most
from lsm_core.names import BenchmarkName
from storage.claims import Claim, Claims
from storage.errors import ClaimLost
from storage.location import Location

if TYPE_CHECKING:
    from lsm_core.evaluation.promotion import PromotionRule
    from lsm_core.experiments.experiment import Experiment


# One at a time: two would both start from the same champion.
@flow(name="retrain", flow_run_name="retrain-{benchmark}", task_runner=at_most(1))
def retrain(
    benchmark: BenchmarkName,
    n_new: Positive = 64,
    watched: str | None = None,
    dataset: str | None = None,
    level: Level = 0.01,
    least_gain: Gain = 0.01,
) -> dict[str, Any]:
    """Train a challenger on new samples and promote it if it is better; return why.

    New are the samples of the next `n_new` seeds; or, if `watched` is a folder, those of the files
    that came there since the last time; or, if `dataset` is the place of a dataset, those of its
    training samples that were not used before. Better is a mean error on the locked test samples
    that is lower by `least_gain`, as a part of the champion's, with a paired test at `level`.
    Whatever fails leaves the champion in place; without a champion or without new samples nothing
    is done, nor on seeds if the champion was trained on official files, which no seeds continue.
    """
    from flows.steps.retraining import NoChampion, NoMoreSeeds
    from lsm_core.evaluation.promotion import PromotionRule

    settings = Settings.from_environment()
    settings.require_usable()
    # The deployment's limit holds for one server, this for everybody who uses the store.
    rule = PromotionRule(level=level, least_gain=least_gain)
    with Claims(settings.root / "claims").held(f"retrain-{benchmark}") as claim:
        earlier = _verdict_on_the_last(benchmark, settings, rule)
        try:
            experiment, notes = _challenger(benchmark, n_new, watched, dataset, settings)
        except (NoChampion, NoMoreSeeds) as error:
            experiment, notes = None, [str(error)]
        if experiment is None:
            verdict = _nothing_new(benchmark)
        else:
            verdict = _trained_and_judged(benchmark, experiment, settings, rule, claim)
    notes = [*notes, *earlier]
    page = "\n\n".join([_page(verdict), *notes])
    create_markdown_artifact(page, key=f"retrain-{benchmark.replace('_', '-')}")
    return {**verdict, "notes": notes}


def _challenger(
    benchmark: BenchmarkName,
    n_new: int,
    watched: str | None,
    dataset: str | None,
    settings: Settings,
) -> tuple["Experiment | None", list[str]]:
    """Return what to train, None if there is nothing new, and what is to be told beside it."""
    from flows.steps.added_samples import take_in
    from flows.steps.retraining import (
        champion_experiment,
        with_dataset,
        with_files,
        with_more_seeds,
    )
    from storage.dataset_reader import open_dataset

    if watched is not None and dataset is not None:
        raise BadInput("new samples come from a watched folder or from a dataset; name one of them")
    base = champion_experiment(benchmark, settings.root, settings.tracking_uri)
    if dataset is not None:
        try:
            opened = open_dataset(Location.parse(dataset))
        except ValueError as error:
            raise BadInput(str(error)) from error
        experiment, note = with_dataset(base, opened, settings.root)
        return experiment, [note] if note else []
    if watched is None:
        return with_more_seeds(base, n_new), []
    intake = take_in(Path(watched), base.data.benchmark, settings.root)
    notes = [f"{name} was left: {reason}" for name, reason in intake.left.items()]
    experiment = with_files(base, intake.taken)
    if experiment is None:
        notes.insert(0, f"{watched} has no file that was not used before")
    return experiment, notes


def _verdict_on_the_last(
    benchmark: BenchmarkName, settings: Settings, rule: "PromotionRule"
) -> list[str]:
    """Judge what a retraining left that died after it had trained; return what came of it."""
    from flows.steps.judgement import judge_left

    with Claims(settings.root / "claims").held(f"champion-{benchmark}"):
        verdict = judge_left(benchmark, settings.root, settings.tracking_uri, rule)
    return (
        [] if verdict is None else [f"An earlier retraining had no verdict yet. {_page(verdict)}"]
    )


def _nothing_new(benchmark: BenchmarkName) -> dict[str, Any]:
    return {"model": f"lsm-{benchmark}", "promoted": False, "reason": "nothing was trained"}


def _trained_and_judged(
    benchmark: BenchmarkName,
    experiment: "Experiment",
    settings: Settings,
    rule: "PromotionRule",
    claim: Claim,
) -> dict[str, Any]:
    from flows.steps.cells import bound
    from flows.steps.datasets import location_of
    from flows.steps.judgement import RETRAIN_SUITE, judge
    from flows.steps.registration import register_run

    root, uri = settings.root, settings.tracking_uri
    experiment = bound(experiment)
    (result,) = run_cells([experiment], settings, RETRAIN_SUITE, settings.n_workers)
    if "error" in result:
        raise CellsFailed(f"the champion stays, its challenger failed with {result['error']}")
    if claim.is_lost:
        raise ClaimLost(
            f"another machine retrains the model of {benchmark} now; it is left to that"
        )
    with Claims(root / "claims").held(f"champion-{benchmark}"):
        register_run(experiment.identity, root, uri, alias="challenger")
        return judge(benchmark, location_of(experiment.data, root), uri, rule)


def _page(verdict: dict[str, Any]) -> str:
    """Return the verdict as Markdown."""
    if "challenger" not in verdict:
        return f"**{verdict['model']}**: {verdict['reason']}."
    versions = f"version {verdict['challenger']} against version {verdict['champion']}"
    what = "promoted" if verdict["promoted"] else "kept as it was"
    return f"**{verdict['model']}**, {versions}: {what}.\n\n{verdict['reason']}"
