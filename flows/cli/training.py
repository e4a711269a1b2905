"""What the commands that train do."""

import argparse
import os
import re
from typing import TYPE_CHECKING, Any, get_args

from flows.cli.results import result_table, show_where
from flows.cli.session import session, show

if TYPE_CHECKING:
    from flows.settings import Settings


def train(options: argparse.Namespace) -> None:
    """Train one model on one benchmark.

    As one of several ranks if torchrun started this.
    """
    if "WORLD_SIZE" in os.environ:
        _train_as_rank(options)
        return
    with session(trains=True):
        from flows.train import train

        results = train(
            [options.benchmark],
            [options.model],
            options.preset,
            [options.seed],
            ranks=options.ranks,
            source=options.source,
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
    from flows.steps.training.workplace import Slot, workplace

    settings = current_settings()
    cell = chosen_cell(
        options.preset,
        problem_named(options.benchmark, settings.root),
        options.model,
        options.seed,
        source=options.source,
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
    """Prepare, train, compare and report."""
    from flows.settings import current_settings
    from lsm_core.result import suite_name

    settings = current_settings()
    benchmarks, models = _chosen(options.benchmarks), _chosen(options.models)
    suite = suite_name("benchmark", options.preset, options.official)
    outcome = None
    if not options.official:  # what those cells are is known when the files are there
        outcome = _settled(settings, suite, options, benchmarks, models)
    if outcome is None:
        with session(trains=True):
            from flows.benchmark import lsm

            outcome = lsm(
                options.preset,
                benchmarks,
                models,
                options.seeds,
                options.official,
                precision=options.precision,
                compile=bool(options.compile),
                device=_device(options),
            )
    show(options, outcome, result_table(outcome["results"]))
    show_where(options, settings, outcome["report"], suite)


def _settled(
    settings: "Settings", suite: str, options: argparse.Namespace, benchmarks: Any, models: Any
) -> dict[str, Any] | None:
    """Return what the flow would if there is nothing to do for it; None if there is."""
    if not (settings.root / "settled" / f"{suite}.json").exists():
        return None  # before anything is imported that takes seconds
    from flows.steps.reports.settled import settled_results
    from flows.steps.training.cells import benchmark_cells, computing
    from storage.tracking.store import open_tracking

    changes = computing(options.precision, bool(options.compile))
    seeds = options.seeds or [0]
    cells = benchmark_cells(options.preset, benchmarks, models, seeds, changes)
    tracking = open_tracking(settings.tracking_uri, settings.root)
    results = settled_results(settings.root, tracking, suite, cells)
    if results is None:
        return None
    page = settings.root / "reports" / suite / "index.html"
    return {"results": [result.to_plain() for result in results], "report": str(page)}


def _chosen(names: list[str] | None) -> Any:
    """Return the names, or None for all of them."""
    return None if names is None or "all" in names else names


def study(options: argparse.Namespace) -> None:
    """Run a study; efficiency trains nothing."""
    from lsm_core.result import outcome_from_plain, suite_name

    if options.name == "efficiency":
        _efficiency(options)
        return
    with session(trains=True) as settings:
        from flows.studies import study
        from lsm_core.studies.sections import setting_table

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
    table = setting_table([outcome_from_plain(result) for result in results])
    show(options, results, table.markdown())
    report = suite_name("benchmark", options.preset, options.official)
    page = settings.root / "reports" / report / "index.html"
    suite = suite_name(options.name, options.preset, options.official)
    show_where(options, settings, str(page), suite)


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
