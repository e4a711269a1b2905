"""What the commands that train do."""

import argparse
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, get_args

from flows.cli.results import result_table, show_where
from flows.cli.session import session, show
from lsm_core.names import BenchmarkName

if TYPE_CHECKING:
    from flows.settings import Settings
    from flows.steps.reports.settled import Meaning

BENCHMARKS = get_args(BenchmarkName)


def train(options: argparse.Namespace) -> None:
    """Train one model on one benchmark.

    As one of several ranks if torchrun started this.
    """
    if "WORLD_SIZE" in os.environ:
        _train_as_rank(options)
        return
    with session(trains=True) as settings:
        from flows.steps.models.shipped import unpack_shipped
        from flows.train import train

        results = train(
            [options.benchmark],
            [options.model],
            options.preset,
            [options.seed],
            ranks=options.ranks,
            source=unpack_shipped(options.source, settings.root),
            training=_changes(options),
            frozen=options.freeze,
            official=options.official,
            device=_device(options),
        )
    show(options, results, result_table(results))


def _train_as_rank(options: argparse.Namespace) -> None:
    """Train as one of the processes that torchrun started, without a Prefect server."""
    from flows.engine.progress import current_progress, show_progress
    from flows.settings import current_settings
    from flows.steps.data.datasets import location_of
    from flows.steps.data.given import problem_named
    from flows.steps.data.official import converted_plan
    from flows.steps.training.cells import chosen_cell, on_official_data, plans_of
    from flows.steps.training.run import train
    from flows.steps.training.starting import named_source
    from flows.steps.training.workplace import Slot, workplace

    settings = current_settings()
    source, like = named_source(options.source, options.model, settings)
    cell = chosen_cell(
        options.preset,
        problem_named(options.benchmark, settings.root),
        options.model,
        options.seed,
        source=source,
        like=like,
        training=_changes(options),
        frozen=options.freeze or (),
    )
    if options.official:
        plans = {
            plan: converted_plan(plan, settings.root, settings.mirrors) for plan in plans_of(cell)
        }
        cell = on_official_data(cell, plans)
    dataset = location_of(cell.data, settings.root).url
    threads = max(1, settings.n_workers // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    slot = Slot(_device(options) or settings.device)
    place = workplace(settings, dataset, study="train", n_threads=threads, slot=slot)
    with show_progress():
        progress = current_progress()
        result = train(
            cell,
            place,
            lambda message: progress.update(
                "train", message["done"], message["total"], message["note"]
            ),
        )
    if os.environ.get("RANK", "0") == "0":
        results = [result.to_plain()]
        show(options, results, result_table(results))


def _changes(options: argparse.Namespace) -> dict[Any, Any]:
    """Return the settings of the preset that the command line changes."""
    from flows.parameters import TrainingSetting

    given = vars(options)
    return {name: given[name] for name in get_args(TrainingSetting) if given.get(name) is not None}


def _device(options: argparse.Namespace) -> str | None:
    """Return the device that is asked for, None for that of the settings; BadInput for no name."""
    from flows.errors import BadInput
    from flows.parameters import DEVICES

    if options.device is not None and not re.match(DEVICES, options.device):
        raise BadInput(f"--device is auto, cpu, cuda, cuda:1 or mps, not {options.device!r}")
    return str(options.device) if options.device else None


def benchmark(options: argparse.Namespace) -> None:
    """Prepare, train, compare and report; answer from the store where nothing is left to do."""
    from flows.settings import current_settings
    from lsm_core.result import suite_name

    settings = current_settings()
    suite = suite_name("benchmark", options.preset, options.official)
    # Of files, and of problems that somebody brought, it is known when they are read.
    is_known = not options.official and set(options.benchmarks or ()) <= {*BENCHMARKS, "all"}
    if is_known and _show_settled(options, settings, suite):
        return
    with session(trains=True):
        from flows.benchmark import lsm

        outcome = lsm(
            options.preset,
            _chosen(options.benchmarks),
            _chosen(options.models),
            options.seeds,
            options.official,
            precision=options.precision,
            compile=bool(options.compile),
            device=_device(options),
        )
    show(options, outcome, result_table(outcome["results"]))
    charts = show_where(options, settings, outcome["report"], suite)
    if is_known:
        _keep_meaning(options, settings, charts)


def _show_settled(options: argparse.Namespace, settings: "Settings", suite: str) -> bool:
    """Show what the flow would, and return True, if there is nothing to do for it."""
    if not (settings.root / "settled" / f"{suite}.json").exists():
        return False  # before anything is imported that takes seconds
    from flows.steps.reports.settled import kept_meaning, request_digest, settled_results
    from storage.tracking.store import open_tracking

    digest = request_digest(_request(options, settings))
    kept = kept_meaning(settings.root, digest)
    meaning = kept or _meaning(options)
    tracking = open_tracking(settings.tracking_uri, settings.root)
    results = settled_results(settings.root, tracking, suite, meaning)
    if results is None:
        return False
    plain = [result.to_plain() for result in results]
    page = str(settings.root / "reports" / suite / "index.html")
    show(options, {"results": plain, "report": page}, result_table(plain))
    charts = show_where(options, settings, page, suite, meaning.charts)
    if kept is None or charts != kept.charts:
        _keep_meaning(options, settings, charts)
    return True


def _request(options: argparse.Namespace, settings: "Settings") -> dict[str, Any]:
    """Return what decides which cells a command means, and where their charts are."""
    asked = ("preset", "benchmarks", "models", "seeds", "precision")
    more = {"compile": bool(options.compile), "runs": settings.tracking_uri}
    return {**{name: vars(options)[name] for name in asked}, **more}


def _meaning(options: argparse.Namespace, charts: str = "") -> "Meaning":
    """Return which cells a command means; this imports all models."""
    from flows.steps.reports.settled import Meaning
    from flows.steps.training.cells import benchmark_cells, computing

    changes = computing(options.precision, bool(options.compile))
    benchmarks, models = _chosen(options.benchmarks), _chosen(options.models)
    cells = benchmark_cells(options.preset, benchmarks, models, options.seeds or [0], changes)
    problems = sorted({cell.benchmark.name for cell in cells})
    return Meaning([cell.identity for cell in cells], problems, charts)


def _keep_meaning(options: argparse.Namespace, settings: "Settings", charts: str) -> None:
    """Note which cells the command meant, so that it is answered at once the next time."""
    from flows.steps.reports.settled import keep_meaning, request_digest
    from storage.errors import StorageError

    with suppress(StorageError):  # it takes some seconds more then
        digest = request_digest(_request(options, settings))
        keep_meaning(settings.root, digest, _meaning(options, charts))


def _chosen(names: list[str] | None) -> Any:
    """Return the names, or None for all of them."""
    return None if names is None or "all" in names else names


def study(options: argparse.Namespace) -> None:
    """Run a study; efficiency trains nothing."""
    from lsm_core.result import outcome_from_plain, suite_name

    if options.name == "efficiency":
        _efficiency(options)
        return
    from flows.settings import current_settings

    settings = current_settings()
    results = None if options.official else _settled_study(settings, options)
    if results is None:
        with session(trains=True):
            from flows.studies import study

            results = study(
                options.name,
                options.preset,
                options.seeds,
                options.models,
                options.rows,
                options.benchmarks,
                options.official,
                precision=options.precision,
                compile=bool(options.compile),
                device=_device(options),
            )
    from lsm_core.studies.sections import setting_table

    table = setting_table([outcome_from_plain(result) for result in results])
    show(options, results, table.markdown())
    report = suite_name("benchmark", options.preset, options.official)
    page = settings.root / "reports" / report / "index.html"
    suite = suite_name(options.name, options.preset, options.official)
    show_where(options, settings, str(page), suite)


def _settled_study(
    settings: "Settings", options: argparse.Namespace
) -> list[dict[str, Any]] | None:
    """Return what the flow of a study would if there is nothing to do for it; None if there is."""
    from dataclasses import replace

    from lsm_core.result import suite_name

    suite = suite_name(options.name, options.preset, official=False)
    if not (settings.root / "settled" / f"{suite}.json").exists():
        return None  # before anything is imported that takes seconds
    from flows.steps.reports.settled import (
        keep_meaning,
        kept_meaning,
        request_digest,
        settled_results,
    )
    from storage.tracking.store import open_tracking

    asked = {**_request(options, settings), "study": options.name, "rows": options.rows}
    digest = request_digest(asked)
    kept = kept_meaning(settings.root, digest)
    meaning = kept or _study_meaning(settings, options)
    tracking = open_tracking(settings.tracking_uri, settings.root)
    report = suite_name("benchmark", options.preset, official=False)
    results = settled_results(settings.root, tracking, suite, meaning, report)
    if results is None:
        return None
    if kept is None:
        keep_meaning(settings.root, digest, meaning)
    return [
        replace(result, study=options.name, setting=name or result.model).to_plain()
        for result, name in zip(results, meaning.names, strict=True)
    ]


def _study_meaning(settings: "Settings", options: argparse.Namespace) -> "Meaning":
    """Return which cells a study means, and what they are called; this imports all models."""
    from flows.steps.data.given import problems_named
    from flows.steps.reports.settled import Meaning
    from flows.steps.training.cells import computing, named_study_cells

    cells, names = named_study_cells(
        options.name,
        options.preset,
        options.seeds,
        options.models,
        options.rows,
        problems_named(options.benchmarks, settings.root),
        computing(options.precision, bool(options.compile)),
    )
    problems = sorted({cell.benchmark.name for cell in cells})
    return Meaning([cell.identity for cell in cells], problems, names=names)


def _efficiency(options: argparse.Namespace) -> None:
    from flows.errors import BadInput

    if options.official:
        raise BadInput("the study efficiency needs no data; leave out --official")
    if options.precision or options.compile:
        raise BadInput("the study efficiency measures plain float32; leave out what changes that")
    if options.estimate:
        _estimate(options)
        return
    if device := _device(options):
        os.environ["LSM_DEVICE"] = device
    with session():
        from flows.studies import efficiency
        from lsm_core.reporting.efficiency import Cost, efficiency_table

        costs = efficiency(options.models, options.sizes)
    known = [Cost.from_plain(cost) for cost in costs]
    show(options, costs, efficiency_table(known))


def _estimate(options: argparse.Namespace) -> None:
    """Show what steps would cost on GPUs that are not here; needs no server and keeps nothing."""
    from flows.engine.progress import current_progress, show_progress
    from flows.steps.reports.efficiency import estimate_efficiency
    from lsm_core.reporting.estimates import estimate_table

    with show_progress():
        costs = estimate_efficiency(options.models, options.sizes, current_progress())
    show(options, [cost.to_plain() for cost in costs], estimate_table(costs).text())
