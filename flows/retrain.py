"""Flow `retrain`: new data, a challenger started from the champion, and the better one stays."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.deployments import run_deployment
from prefect.events import emit_event
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import deployment, flow_run
from prefect.states import Completed

from flows.engine.cells import run_cells
from flows.engine.pool import cancel_cells
from flows.engine.run_names import named
from flows.engine.suite import Suite, artifact_key
from flows.engine.tries import A_MONTH, tried_once_more
from flows.errors import BadInput, CellsFailed
from flows.parameters import Gain, Level, Positive, ProblemName, Where
from flows.settings import Settings, current_settings
from lsm_core.result import Failure
from storage.errors import LeaseLost, translated
from storage.location import Location
from storage.runs.leases import Lease, Leases

if TYPE_CHECKING:
    from flows.steps.models.judgement import Terms, Verdict
    from lsm_core.benchmarks.benchmark import Benchmark
    from lsm_core.experiments.experiment import Experiment
    from lsm_core.experiments.plans import AddedSamples
    from storage.tracking.model_state import ModelVersion

DEPLOYMENT = "retrain/scheduled"
JUDGED, CHANGED = "lsm.retraining.judged", "lsm.champion.changed"
"""The events of a verdict, and of a champion that changed."""
STRANGE = "lsm.inputs.strange"
"""The event of a champion that was given too many inputs unlike those it was trained on."""
WEEK = 7 * 24 * 3600


class Approval(RunInput):
    """What whoever resumes a suspended retraining says."""

    promote: bool
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """What is to be trained, and what is to be told beside it."""

    experiment: "Experiment | None" = None
    notes: tuple[str, ...] = ()


def _name(parameters: dict[str, Any]) -> str:
    if not parameters["benchmark"]:
        return "retrain: every problem with a champion"
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
    benchmark: ProblemName | None = None,
    n_new: Positive = 64,
    watched: str | None = None,
    dataset: str | None = None,
    league: str | None = None,
    false_promotions: Level = 0.1,
    least_gain: Gain = 0.01,
    approve: bool = False,
    control: bool = True,
    max_samples: Positive = 4096,
    keep_versions: Positive = 10,
    cells: Where = "here",
) -> State[Any]:
    """Train a challenger on new samples and promote it if it is better; say why or why not.

    The run ends as Promoted, Kept, NothingNew or NeedsApproval. Better is a mean error on the
    locked test samples that is lower, with nothing else much worse. Whatever fails leaves the
    champion in place; without a champion or without new samples nothing is done, nor on seeds if
    the champion was trained on official files, which no seeds continue.

    Args:
        benchmark: The problem whose champion is challenged. If none is named, a run is submitted
            for each problem that has a champion.
        n_new: How many new samples to make from the next seeds, where neither files nor a dataset
            are named.
        watched: A folder; new are the samples of files that came there since the last time.
        dataset: The place of a dataset; new are those of its training samples that were not used
            before.
        league: Whose champion, as preset and kind of data, like `quick` or `paper-official`; the
            largest one that has a champion if it is not said.
        false_promotions: How many challengers that are no better a year may promote, on average;
            the more often is judged, the more each has to show.
        least_gain: By how much the error has to be lower, as a part of the champion's.
        approve: Whether the run waits for a person's word, suspended, before it promotes.
        control: Whether the champion is trained on without the new samples, too, to tell what they
            gave from what more epochs give.
        max_samples: How many training samples a challenger has at most; the oldest files go.
        keep_versions: How many models of retrainings stay registered, beside champions; data and
            weights of the others are freed.
        cells: Where the challenger trains: `here`, in a process of this run; on the `pool` of
            cells; `auto` takes the pool for presets that take longer than quick.

    """
    from flows.steps.models.judgement import Terms
    from flows.steps.models.retraining import NOTES_TAG, own_challenger, retire
    from lsm_core.evaluation.promotion import PromotionRule

    if benchmark is None:
        return _retrain_all(flow_run.get_parameters())
    settings = current_settings()
    root, uri = settings.root, settings.tracking_uri
    terms = Terms(
        rule=PromotionRule(least_gain=least_gain),
        false_promotions=false_promotions,
        approve=approve,
        at=_due(),
    )
    # The queue's limit holds for one server, this for everybody who uses the store.
    with Leases(root / "claims").hold(f"retrain-{benchmark}") as lease:
        own = own_challenger(benchmark, flow_run.get_id(), root, uri)
        notes = [] if own is None else json.loads(own.tags.get(NOTES_TAG, "[]"))
        verdict = None if own is None else _verdict_of_this_run(own, notes, settings, terms)
        if verdict is None:
            notes = _verdict_on_the_last(benchmark, settings, terms)
            challenge = _challenge(
                benchmark, n_new, watched, dataset, league, max_samples, settings
            )
            notes = [*challenge.notes, *notes]
            challenge = replace(challenge, notes=tuple(notes))
            verdict = _trained_and_judged(
                benchmark, challenge, control, settings, terms, lease, cells
            )
        retire(benchmark, keep_versions, root, uri)
        notes += _freed(benchmark, settings)
    return _told(benchmark, verdict, notes, settings)


def _due() -> int:
    """Return for when this run was meant, in milliseconds since 1970: a verdict is of its night."""
    due: datetime = flow_run.get_scheduled_start_time()
    return round(1000 * due.timestamp())


def _retrain_all(parameters: dict[str, Any]) -> State[Any]:
    """Submit a run for each problem that has a champion."""
    from flows.steps.models.retraining import champions

    settings = current_settings()
    found = champions(settings.root, settings.tracking_uri)
    for benchmark in found:
        run_deployment(
            DEPLOYMENT,
            parameters={**parameters, "benchmark": benchmark},
            timeout=0,
            as_subflow=False,
        )
    if not found:
        return Completed(name="NothingNew", message="no problem has a champion", data=[])
    return Completed(message=f"submitted for {', '.join(found)}", data=list(found))


def _challenge(
    benchmark: ProblemName,
    n_new: int,
    watched: str | None,
    dataset: str | None,
    league: str | None,
    max_samples: int,
    settings: Settings,
) -> Challenge:
    """Return what to train, nothing if there is nothing new, and what is to be told beside it."""
    from flows.steps.data.added_samples import shift_of, take_in
    from flows.steps.models import retraining
    from storage.datasets.reader import open_dataset

    if watched is not None and dataset is not None:
        raise BadInput("new samples come from a watched folder or from a dataset; name one of them")
    root, uri = settings.root, settings.tracking_uri
    notes: list[str] = []
    try:
        _, result = retraining.champion_run(benchmark, root, uri, league)
        base = retraining.champion_experiment(benchmark, root, uri, league)
        retraining.require_comparable(base)
        known = retraining.known_profile(result, base, root)
        if dataset is not None:
            with translated(ValueError, into=BadInput):
                opened = open_dataset(Location.parse(dataset))
            planned, note = retraining.with_dataset(base, opened, root, known)
            notes += [note] if note else []
        elif watched is not None:
            intake = take_in(Path(watched), base.data.benchmark, root, known)
            notes += [f"{name} was left: {reason}" for name, reason in intake.left.items()]
            planned = retraining.with_files(base, intake.taken)
            if planned is None:
                notes.insert(0, f"{watched} has no file that can be used and was not used before")
        else:
            planned = retraining.with_more_seeds(base, n_new)
        if planned is None:
            return Challenge(notes=tuple(notes))
        planned = retraining.within(planned, base, max_samples, root)
    except (
        retraining.NoChampion,
        retraining.NoMoreSeeds,
        retraining.BudgetSpent,
        retraining.TooFewTests,
    ) as error:
        return Challenge(notes=(*notes, str(error)))
    before = {each.digest for each in retraining.added_of(base.data)}
    new = [each for each in retraining.added_of(planned.data) if each.digest not in before]
    shift = shift_of(new, base.data.benchmark, root, known)
    strange = _strange_inputs(benchmark, result.identity, new, base.data.benchmark, root)
    return Challenge(experiment=planned, notes=(*notes, *filter(None, (shift, strange))))


def _strange_inputs(
    benchmark: ProblemName,
    identity: str,
    new: Sequence["AddedSamples"],
    problem: "Benchmark",
    root: Location,
) -> str:
    """Return how many new inputs the champion has not seen the like of, and emit an event if many.

    Whoever makes data may wait for it: the champion asks for samples of that kind.
    """
    from flows.steps.data.added_samples import inputs_of
    from flows.steps.models.trust import strange_note

    said = strange_note(identity, inputs_of(new, problem, root), root) if new else ""
    if said:
        resource = {
            "prefect.resource.id": f"lsm.model.{benchmark}",
            "prefect.resource.name": f"pde-{benchmark}",
            "lsm.benchmark": benchmark,
        }
        emit_event(STRANGE, resource=resource, payload={"reason": said})
    return said


def _verdict_on_the_last(benchmark: ProblemName, settings: Settings, terms: "Terms") -> list[str]:
    """Judge what a retraining left that died after it had trained; return what came of it."""
    from flows.steps.models.judgement import judge_left
    from flows.steps.models.retraining import NOTES_TAG
    from storage.tracking.registry import ModelRegistry

    with Leases(settings.root / "claims").hold(f"champion-{benchmark}"):
        verdict = judge_left(benchmark, settings.root, settings.tracking_uri, terms)
    if verdict is None:
        return []
    version = ModelRegistry(settings.tracking_uri, settings.root).find(
        f"{verdict.model}/{verdict.challenger}"
    )
    notes = json.loads(version.tags.get(NOTES_TAG, "[]"))
    _announce(benchmark, verdict, notes)
    said = "; ".join([verdict.reason, *notes])
    return [f"An earlier retraining had no verdict yet. {_headline(verdict)} {said}."]


def _trained_and_judged(
    benchmark: ProblemName,
    challenge: Challenge,
    control: bool,
    settings: Settings,
    terms: "Terms",
    lease: Lease,
    where: Where,
) -> "Verdict":
    from flows.steps.data.datasets import location_of
    from flows.steps.models.judgement import RETRAIN_SUITE, Verdict, judge
    from flows.steps.models.registration import register_run
    from flows.steps.models.retraining import NOTES_TAG, RUN_TAG, champion_run, control_of
    from flows.steps.training.cells import bind
    from storage.tracking.model_state import Change
    from storage.tracking.registry import ModelRegistry, registered_name

    root, uri, experiment = settings.root, settings.tracking_uri, challenge.experiment
    if experiment is None:
        name = registered_name(benchmark)
        return Verdict(model=name, state="NothingNew", reason="nothing was trained")
    wanted = {"challenger": bind(experiment)}
    if control:
        league = wanted["challenger"].outcome(RETRAIN_SUITE)
        _, result = champion_run(benchmark, root, uri, _league(league))
        wanted["control"] = bind(control_of(result))
    cell = wanted["challenger"]
    suite = Suite(
        study=RETRAIN_SUITE,
        preset=cell.preset,
        cells=list(wanted.values()),
        names=list(wanted),
        at_once=1,
        where=where,
    )
    outcome, *_ = run_cells(suite, settings)  # without a control the verdict says less
    if isinstance(outcome, Failure):
        raise CellsFailed(f"the champion stays, its challenger failed with {outcome.error}")
    if lease.is_lost:
        raise LeaseLost(
            f"another machine retrains the model of {benchmark} now; it is left to that"
        )
    with Leases(root / "claims").hold(f"champion-{benchmark}"):
        version = register_run(cell.identity, root, uri, alias="challenger")
        by = {RUN_TAG: str(flow_run.get_id() or "")}
        if challenge.notes:  # whoever goes on where this run was stopped tells them, too
            by[NOTES_TAG] = json.dumps(challenge.notes)
        change = Change(versions={version.number: by}, reason="made by this run")
        ModelRegistry(uri, root).note(version.name, change)
        verdict = judge(benchmark, location_of(cell.data, root), root, uri, terms)
    return _approved(verdict, benchmark, challenge.notes, settings, terms)


def _league(outcome: Any) -> str:
    from storage.tracking.model_state import league_of

    return league_of({"preset": outcome.preset, "origin": outcome.origin})


def _verdict_of_this_run(
    own: "ModelVersion", notes: Sequence[str], settings: Settings, terms: "Terms"
) -> "Verdict | None":
    """Go on where this run was stopped: killed before its verdict, or suspended for a person's."""
    from flows.steps.models.judgement import Verdict, judge_left
    from storage.tracking.registry import ModelRegistry

    root, uri, benchmark = settings.root, settings.tracking_uri, own.tags["benchmark"]
    with Leases(root / "claims").hold(f"champion-{benchmark}"):
        verdict = judge_left(benchmark, root, uri, terms)
    if verdict is not None:
        return _approved(verdict, benchmark, notes, settings, terms)
    tags = ModelRegistry(uri, root).find(str(own)).tags
    if "judged/state" not in tags:
        return None
    verdict = Verdict(
        model=own.name,
        state=tags["judged/state"],  # type: ignore[arg-type]
        reason=tags["judged/reason"],
        champion=int(tags["judged/against"]),
        challenger=own.number,
    )
    return _approved(verdict, benchmark, notes, settings, terms)


def _approved(
    verdict: "Verdict",
    benchmark: str,
    notes: Sequence[str],
    settings: Settings,
    terms: "Terms",
) -> "Verdict":
    """Ask a person, if that is wanted; the run is suspended until somebody resumes it."""
    from flows.steps.models.judgement import answer
    from flows.steps.models.retraining import ASKED_TAG
    from storage.tracking.model_state import Change
    from storage.tracking.registry import ModelRegistry

    if not terms.approve or verdict.state != "NeedsApproval" or not deployment.get_id():
        return verdict  # only a run of a deployment can be suspended; else it ends as it is
    reason = "; ".join([verdict.reason, *notes])
    shown = f"{_headline(verdict)}\n\n{reason}\n\nShall it become the champion?"
    # Told before: a run that waits has nobody who could tell it. Once: resumed it comes here, too.
    # Noted after: one that was killed while it told tells again.
    registry = ModelRegistry(settings.tracking_uri, settings.root)
    challenger = registry.find(f"{verdict.model}/{verdict.challenger}")
    if ASKED_TAG not in challenger.tags:
        _show(benchmark, verdict, notes, settings)
        asked = Change(versions={challenger.number: {ASKED_TAG: "yes"}}, reason="a person is asked")
        registry.note(verdict.model, asked)
    said = suspend_flow_run(
        wait_for_input=Approval.with_initial_data(description=shown, promote=False),
        timeout=WEEK,
        key=f"approve-{verdict.challenger}",
    )
    root, uri = settings.root, settings.tracking_uri
    with Leases(root / "claims").hold(f"champion-{benchmark}"):
        version = registry.find(f"{verdict.model}/{verdict.challenger}")
        answered = answer(version, said.promote, said.why, root, uri, terms.time)
    return replace(answered, decision=verdict.decision, pair=verdict.pair)


def _freed(benchmark: ProblemName, settings: Settings) -> list[str]:
    """Free what the retrainings of a problem have left, and return what that was."""
    from flows.steps.data.unused import free, unused

    found = unused(settings.root, settings.tracking_uri, benchmark, retrained_only=True)
    freed = free(found, settings.root, settings.tracking_uri)
    n_bytes = sum(each.n_bytes for each in freed)
    return [f"{n_bytes / 1e6:.1f} MB of retired models freed"] if freed else []


def _told(
    benchmark: ProblemName, verdict: "Verdict", notes: list[str], settings: Settings
) -> State[Any]:
    """Tell the verdict where people look, and return the state that the run ends in."""
    _show(benchmark, verdict, notes, settings)
    said = "; ".join([verdict.reason, *notes])
    get_run_logger().info("%s %s", _headline(verdict), said)
    return Completed(name=verdict.state, message=said, data={**verdict.to_plain(), "notes": notes})


def _show(benchmark: str, verdict: "Verdict", notes: Sequence[str], settings: Settings) -> None:
    from flows.steps.models.verdict_page import write_verdict

    page = write_verdict(benchmark, verdict, notes, settings)
    create_markdown_artifact(
        page, key=artifact_key(f"retrain-{benchmark}"), description=_headline(verdict)
    )
    _announce(benchmark, verdict, notes)


def _announce(benchmark: str, verdict: "Verdict", notes: Sequence[str] = ()) -> None:
    """Emit the event of a verdict with what is told beside it, and that of a new champion."""
    resource = {
        "prefect.resource.id": f"lsm.model.{benchmark}",
        "prefect.resource.name": verdict.model,
        "lsm.benchmark": benchmark,
        "lsm.verdict": verdict.state,
    }
    payload = {"headline": _headline(verdict), "reason": "; ".join([verdict.reason, *notes])}
    for event in (JUDGED, *([CHANGED] if verdict.promoted else [])):
        emit_event(event, resource=resource, payload=payload)


def _headline(verdict: "Verdict") -> str:
    """Return a verdict in a line."""
    if verdict.challenger is None:
        return f"{verdict.model}: nothing new."
    what = {
        "Promoted": "is the champion now, in place of",
        "Kept": "does not take the place of",
        "NeedsApproval": "needs approval to take the place of",
    }[verdict.state]
    return f"{verdict.model}: version {verdict.challenger} {what} version {verdict.champion}."
