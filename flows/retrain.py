"""Flow `retrain`: new data, a challenger started from the champion, and the better one stays."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.engine.cells import run_cells
from flows.engine.pool import cancel_cells
from flows.engine.run_names import named
from flows.engine.suite import Suite
from flows.engine.tries import A_MONTH, tried_once_more
from flows.errors import BadInput, CellsFailed
from flows.parameters import Gain, Level, Positive, ProblemName, Where
from flows.settings import Settings, current_settings
from lsm_core.result import Failure
from storage.errors import LeaseLost, translated
from storage.location import Location
from storage.runs.leases import Lease, Leases

if TYPE_CHECKING:
    from flows.steps.models.judgement import Verdict
    from lsm_core.evaluation.promotion import PromotionRule
    from lsm_core.experiments.experiment import Experiment


def _name(parameters: dict[str, Any]) -> str:
    news = parameters["watched"] or parameters["dataset"] or f"{parameters['n_new']} new seeds"
    return f"retrain-{parameters['benchmark']}: {news}"


@flow(
    name="retrain",
    flow_run_name=named(_name),
    on_cancellation=[cancel_cells],
    timeout_seconds=A_MONTH,
)
@tried_once_more
def retrain(
    benchmark: ProblemName,
    n_new: Positive = 64,
    watched: str | None = None,
    dataset: str | None = None,
    level: Level = 0.01,
    least_gain: Gain = 0.01,
    cells: Where = "here",
) -> dict[str, Any]:
    """Train a challenger on new samples and promote it if it is better; return why.

    Better is a mean error on the locked test samples that is lower. Whatever fails leaves the
    champion in place; without a champion or without new samples nothing is done, nor on seeds if
    the champion was trained on official files, which no seeds continue.

    Args:
        benchmark: The problem whose champion is challenged.
        n_new: How many new samples to make from the next seeds, where neither files nor a dataset
            are named.
        watched: A folder; new are the samples of files that came there since the last time.
        dataset: The place of a dataset; new are those of its training samples that were not used
            before.
        level: The level of the paired test that the challenger has to pass.
        least_gain: By how much the error has to be lower, as a part of the champion's.
        cells: Where the challenger trains: `here`, in a process of this run; on the `pool` of
            cells; `auto` takes the pool for presets that take longer than quick.

    """
    from flows.steps.models.judgement import Verdict
    from flows.steps.models.retraining import NoChampion, NoMoreSeeds
    from lsm_core.evaluation.promotion import PromotionRule
    from storage.tracking.registry import registered_name

    settings = current_settings()
    # The deployment's limit holds for one server, this for everybody who uses the store.
    rule = PromotionRule(level=level, least_gain=least_gain)
    with Leases(settings.root / "claims").hold(f"retrain-{benchmark}") as lease:
        earlier = _verdict_on_the_last(benchmark, settings, rule)
        try:
            experiment, notes = _challenger(benchmark, n_new, watched, dataset, settings)
        except (NoChampion, NoMoreSeeds) as error:
            experiment, notes = None, [str(error)]
        if experiment is None:
            name = registered_name(benchmark)
            verdict = Verdict(model=name, promoted=False, reason="nothing was trained")
        else:
            verdict = _trained_and_judged(benchmark, experiment, settings, rule, lease, cells)
    notes = [*notes, *earlier]
    page = "\n\n".join([_page(verdict), *notes])
    create_markdown_artifact(page, key=f"retrain-{benchmark.replace('_', '-')}")
    return {**verdict.to_plain(), "notes": notes}


def _challenger(
    benchmark: ProblemName,
    n_new: int,
    watched: str | None,
    dataset: str | None,
    settings: Settings,
) -> tuple["Experiment | None", list[str]]:
    """Return what to train, None if there is nothing new, and what is to be told beside it."""
    from flows.steps.data.added_samples import take_in
    from flows.steps.models.retraining import (
        champion_experiment,
        with_dataset,
        with_files,
        with_more_seeds,
    )
    from storage.datasets.reader import open_dataset

    if watched is not None and dataset is not None:
        raise BadInput("new samples come from a watched folder or from a dataset; name one of them")
    base = champion_experiment(benchmark, settings.root, settings.tracking_uri)
    if dataset is not None:
        with translated(ValueError, into=BadInput):
            opened = open_dataset(Location.parse(dataset))
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
    benchmark: ProblemName, settings: Settings, rule: "PromotionRule"
) -> list[str]:
    """Judge what a retraining left that died after it had trained; return what came of it."""
    from flows.steps.models.judgement import judge_left

    with Leases(settings.root / "claims").hold(f"champion-{benchmark}"):
        verdict = judge_left(benchmark, settings.root, settings.tracking_uri, rule)
    return (
        [] if verdict is None else [f"An earlier retraining had no verdict yet. {_page(verdict)}"]
    )


def _trained_and_judged(
    benchmark: ProblemName,
    experiment: "Experiment",
    settings: Settings,
    rule: "PromotionRule",
    lease: Lease,
    where: Where,
) -> "Verdict":
    from flows.steps.data.datasets import location_of
    from flows.steps.models.judgement import RETRAIN_SUITE, judge
    from flows.steps.models.registration import register_run
    from flows.steps.training.cells import bind

    root, uri = settings.root, settings.tracking_uri
    cell = bind(experiment)
    suite = Suite(study=RETRAIN_SUITE, preset=cell.preset, cells=[cell], at_once=1, where=where)
    (outcome,) = run_cells(suite, settings)
    if isinstance(outcome, Failure):
        raise CellsFailed(f"the champion stays, its challenger failed with {outcome.error}")
    if lease.is_lost:
        raise LeaseLost(
            f"another machine retrains the model of {benchmark} now; it is left to that"
        )
    with Leases(root / "claims").hold(f"champion-{benchmark}"):
        register_run(cell.identity, root, uri, alias="challenger")
        return judge(benchmark, location_of(cell.data, root), root, uri, rule)


def _page(verdict: "Verdict") -> str:
    """Return the verdict as Markdown."""
    if verdict.challenger is None:
        return f"**{verdict.model}**: {verdict.reason}."
    versions = f"version {verdict.challenger} against version {verdict.champion}"
    what = "promoted" if verdict.promoted else "kept as it was"
    return f"**{verdict.model}**, {versions}: {what}.\n\n{verdict.reason}"
