"""What the commands of data, training and results do.

Heavy packages are imported inside, here and in the other commands: help answers at once.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from lsm_core.names import PRESET_PURPOSES, BenchmarkName, ModelName

if TYPE_CHECKING:
    from flows.parameters import TrainingSetting
    from flows.settings import Settings


def current_settings() -> "Settings":
    """Return the settings of the environment, with a root that can be written."""
    from flows.settings import Settings

    settings = Settings.from_environment()
    settings.require_usable()
    return settings


def list_names(options: argparse.Namespace) -> None:
    """Show benchmarks, models and presets, or one data card."""
    from lsm_core.benchmarks.catalogue import BENCHMARKS, data_card

    if options.name:
        card = data_card(options.name)
        print(json.dumps({"name": options.name, "card": card}) if options.json else card)
        return
    benchmarks = {name: made.title for name, made in BENCHMARKS.items()}
    names: dict[str, Any] = {
        "benchmarks": benchmarks,
        "models": list(get_args(ModelName)),
        "presets": PRESET_PURPOSES,
    }
    if options.json:
        print(json.dumps(names))
        return
    print("Benchmarks (`lsm list NAME` shows the data card)")
    for name, title in benchmarks.items():
        print(f"  {name:<14} {title}")
    print(f"Models\n  {', '.join(names['models'])}\nPresets")
    for preset, purpose in PRESET_PURPOSES.items():
        print(f"  {preset:<14} {purpose}")


def prepare(options: argparse.Namespace) -> None:
    """Generate or convert the data of benchmarks."""
    from flows.errors import BadInput
    from flows.services import prefect_api

    if bool(options.names) == options.all:
        raise BadInput("name the benchmarks to prepare, or say --all; `lsm list` shows them")
    names = options.names or list(get_args(BenchmarkName))
    from flows.progress import shown_progress
    from lsm_core.experiments.data_plans import variants

    try:
        variants(options.preset, names, options.resolution or ())
    except ValueError as error:
        raise BadInput(str(error)) from error
    with prefect_api(current_settings()), shown_progress():
        from flows.prepare import prepare

        places = prepare(
            names,
            options.preset,
            options.resolution,
            official=options.official or bool(options.mirrors),
            mirrors=options.mirrors,
            stride=options.stride,
        )
    if options.export:
        _export(places, Path(options.export))
    if options.json:
        print(json.dumps(places))
    else:
        for name, place in places.items():
            print(f"{name}: {_shown(place)}")


def _export(places: dict[str, str], folder: Path) -> None:
    from flows.steps.official import export
    from storage.dataset_reader import open_dataset
    from storage.location import Location

    for place in places.values():
        for path in export(open_dataset(Location(place)), folder):
            print(f"wrote {_shown(str(path))}", file=sys.stderr)


def train(options: argparse.Namespace) -> None:
    """Train one model on one benchmark; as one of several ranks if torchrun started this."""
    if "WORLD_SIZE" in os.environ:
        _train_as_rank(options)
        return
    from flows.progress import shown_progress
    from flows.services import prefect_api
    from flows.steps.isolation import prepare_isolation

    prepare_isolation()
    with prefect_api(current_settings()), shown_progress():
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
        )
    _show_results(results, options.json)


def _train_as_rank(options: argparse.Namespace) -> None:
    """Train as one of the processes that torchrun started, without a Prefect server."""
    from flows.progress import current_progress, shown_progress
    from flows.steps.cells import chosen_cell, on_official_data, plans_of, workplace
    from flows.steps.datasets import location_of
    from flows.steps.official import converted_plan
    from flows.steps.training import train

    settings = current_settings()
    cell = chosen_cell(
        options.preset,
        options.benchmark,
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
    place = workplace(settings, dataset, suite="train", n_threads=threads)
    with shown_progress():
        progress = current_progress()
        result = train(
            cell,
            place,
            lambda message: progress.update("train", message["done"], message["total"]),
        )
    if os.environ.get("RANK", "0") == "0":
        _show_results([result], options.json)


def _changes(options: argparse.Namespace) -> "dict[TrainingSetting, Any]":
    """Return the settings of the preset that the command line changes."""
    names: tuple[TrainingSetting, ...]
    names = ("fraction", "epochs", "batch_size", "learning_rate", "selection")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def benchmark(options: argparse.Namespace) -> None:
    """Prepare, train, compare and report."""
    from flows.progress import shown_progress
    from flows.services import prefect_api
    from flows.steps.isolation import prepare_isolation
    from flows.steps.stored_results import suite_name

    settings = current_settings()
    prepare_isolation()
    with prefect_api(settings), shown_progress():
        from flows.lsm import lsm

        benchmarks, models = _chosen(options.benchmarks), _chosen(options.models)
        outcome = lsm(options.preset, benchmarks, models, options.seeds, options.official)
    if options.json:
        print(json.dumps(outcome))
        return
    _show_results(outcome["results"], as_json=False)
    suite = suite_name("benchmark", options.preset, options.official)
    _show_where(settings, outcome["report"], suite)


def report(options: argparse.Namespace) -> None:
    """Write the report of runs, or pictures of the data."""
    from flows.steps.report import write_full_report

    settings = current_settings()
    if options.about == "results":
        from flows.steps.results_page import write_results_page

        files = write_results_page(settings.root, Path(options.out), options.note)
        written = [str(path) for path in files]
        print(json.dumps(written) if options.json else "\n".join(f"wrote {p}" for p in written))
        return
    if options.about == "data":
        from flows.steps.data_report import write_data_report

        page = write_data_report(settings.root, options.preset or "quick")
        print(
            json.dumps({"report": str(page)}) if options.json else f"Report:  {_shown(str(page))}"
        )
        return
    report = write_full_report(settings.root, options.preset)
    if options.json:
        print(json.dumps({"report": str(report.page)}))
    else:
        print(report.markdown)
        _show_where(settings, str(report.page))


def study(options: argparse.Namespace) -> None:
    """Run a study, or measure what models cost."""
    if options.name == "efficiency":
        _efficiency(options)
        return
    from flows.progress import shown_progress
    from flows.services import prefect_api
    from flows.steps.isolation import prepare_isolation
    from flows.steps.stored_results import suite_name

    prepare_isolation()
    with prefect_api(current_settings()), shown_progress():
        from flows.studies import stability, study
        from lsm_core.reporting.study import study_table

        if options.name == "stability":
            results = stability(
                options.preset,
                options.seeds,
                options.benchmarks,
                options.models,
                options.official,
            )
        else:
            results = study(
                options.name,
                options.preset,
                options.seeds,
                options.models,
                options.rows,
                options.benchmarks,
                options.official,
            )
    if options.json:
        print(json.dumps(results))
        return
    print(study_table(results))
    settings = current_settings()
    page = settings.root / "reports" / f"benchmark-{options.preset}" / "index.html"
    suite = suite_name(options.name, options.preset, options.official)
    _show_where(settings, str(page), suite)


def _efficiency(options: argparse.Namespace) -> None:
    from flows.errors import BadInput
    from flows.progress import shown_progress
    from flows.services import prefect_api

    if options.official:
        raise BadInput("the study efficiency needs no data; leave out --official")
    with prefect_api(current_settings()), shown_progress():
        from flows.studies import efficiency
        from lsm_core.reporting.efficiency import efficiency_table

        costs = efficiency(options.models, options.sizes)
    print(json.dumps(costs) if options.json else efficiency_table(costs))


def _chosen(names: list[str] | None) -> Any:
    """Return the names, or None for all of them."""
    return None if names is None or "all" in names else names


def _show_results(results: list[dict[str, Any]], as_json: bool) -> None:
    from lsm_core.reporting.comparison import compare, text_table

    print(json.dumps(results) if as_json else text_table(compare(results)))


def _show_where(settings: "Settings", report: str, suite: str = "") -> None:
    """Say where to look further: the report, and the charts of a suite or of all runs."""
    from flows.steps.training import open_tracking
    from storage.charts_page import charts_address
    from storage.errors import StoreUnavailable
    from storage.run_journal import without_credentials

    print(f"\nReport:  {_shown(report)}")
    try:
        charts = charts_address(open_tracking(settings.tracking_uri, settings.root), suite)
    except StoreUnavailable as error:
        print(f"MLflow:  {error}; `lsm runs sync` sends what waits")
        return
    if settings.tracking_uri.startswith("http"):
        print(f"MLflow:  {settings.mlflow_address}/{charts}")
        return
    port = settings.mlflow_port
    mlflow = _shown(str(Path(sys.executable).parent / "mlflow"))
    shown = without_credentials(settings.tracking_uri)
    print(f"MLflow:  {mlflow} server --backend-store-uri {shown} --port {port}")
    print(f"         then open {settings.mlflow_address}/{charts}")


def _shown(place: str) -> str:
    """Return a path below this folder as a relative one, anything else as it is."""
    path = place.removeprefix("file://")
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
