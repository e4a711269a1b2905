"""What each command of `lsm` does. Heavy packages are imported inside: help answers at once."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from lsm_core.names import PRESET_PURPOSES, BenchmarkName, ModelName

if TYPE_CHECKING:
    from flows.settings import Settings


def _settings() -> "Settings":
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
    with prefect_api(_settings()), shown_progress():
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

    with prefect_api(_settings()), shown_progress():
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
        )
    _show_results(results, options.json)


def _train_as_rank(options: argparse.Namespace) -> None:
    """Train as one of the processes that torchrun started, without a Prefect server."""
    from flows.progress import current_progress, shown_progress
    from flows.steps.cells import chosen_cell, workplace
    from flows.steps.datasets import location_of
    from flows.steps.training import train

    settings = _settings()
    cell = chosen_cell(
        options.preset,
        options.benchmark,
        options.model,
        options.seed,
        source=options.source,
        training=_changes(options),
        frozen=options.freeze or (),
    )
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


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the preset that the command line changes."""
    names = ("fraction", "epochs", "batch_size", "learning_rate", "selection")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def benchmark(options: argparse.Namespace) -> None:
    """Prepare, train, compare and report."""
    from flows.progress import shown_progress
    from flows.services import prefect_api

    settings = _settings()
    with prefect_api(settings), shown_progress():
        from flows.lsm import lsm

        benchmarks, models = _chosen(options.benchmarks), _chosen(options.models)
        outcome = lsm(options.preset, benchmarks, models, options.seeds)
    if options.json:
        print(json.dumps(outcome))
        return
    _show_results(outcome["results"], as_json=False)
    _show_where(settings, outcome["report"], f"benchmark-{options.preset}")


def report(options: argparse.Namespace) -> None:
    """Write the report of runs, or pictures of the data."""
    from flows.steps.report import write_full_report

    settings = _settings()
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

    with prefect_api(_settings()), shown_progress():
        from flows.studies import stability, study
        from lsm_core.reporting.study import study_table

        if options.name == "stability":
            results = stability(options.preset, options.seeds, options.benchmarks, options.models)
        else:
            results = study(
                options.name, options.preset, options.seeds, options.models, options.rows
            )
    print(json.dumps(results) if options.json else study_table(results))


def _efficiency(options: argparse.Namespace) -> None:
    from flows.progress import current_progress, shown_progress
    from flows.steps.efficiency import measure_efficiency
    from lsm_core.reporting.efficiency import efficiency_table

    settings = _settings()
    with shown_progress():
        costs = measure_efficiency(
            options.models or ["lsm", "fno"], options.sizes, settings, current_progress()
        )
    print(json.dumps(costs) if options.json else efficiency_table(costs))


def predict(options: argparse.Namespace) -> None:
    """Predict the fields of a file with a trained model."""
    from flows.steps.prediction import Outputs, predict_file

    settings = _settings()
    outputs = Outputs(fields=options.out, plot=options.plot, vtk=options.vtk)
    done = predict_file(options.model, options.input, outputs, settings.root, settings.tracking_uri)
    if options.json:
        print(json.dumps(done))
        return
    print(f"{done['samples']} samples by {done['model']}: {done['fields']}")
    for path in (done["plot"], *done["vtk"]):
        if path:
            print(f"wrote {path}")
    if done["rel_l2"]:
        mean = sum(done["rel_l2"]) / len(done["rel_l2"])
        print(f"mean relative L2 error against the targets in the file: {mean:.5f}")


def registry(options: argparse.Namespace) -> None:
    """Show the registered models, add one, make one the champion, or import a released one."""
    from flows.errors import BadInput

    settings = _settings()
    if options.action == "list":
        _list_registered(settings, options.json)
        return
    if not options.what:
        raise BadInput(f"say what to {options.action}; `lsm registry --help` explains")
    if options.action == "import":
        _import_released(settings, options)
        return
    from flows.steps.registration import promote, register_run

    if options.action == "add":
        version = register_run(options.what, settings.root, settings.tracking_uri, options.alias)
    else:
        version = promote(options.what, settings.tracking_uri)
    plain = version.plain()
    shown = f"{version.name}/{version.number}"
    print(json.dumps(plain) if options.json else f"{shown} {', '.join(plain['aliases'])}".rstrip())


def _list_registered(settings: "Settings", as_json: bool) -> None:
    from flows.steps.registration import registered_models

    found = registered_models(settings.tracking_uri)
    if as_json:
        print(json.dumps(found))
        return
    for version in found:
        tags = version["tags"]
        aliases = ", ".join(version["aliases"])
        print(
            f"{version['name']}/{version['number']:<4} {tags.get('model', ''):<9} "
            f"test relative L2 {tags.get('test/rel_l2', '?'):<9} {aliases}".rstrip()
        )
    if not found:
        print("no model is registered; `lsm registry add IDENTITY` does it")


def _import_released(settings: "Settings", options: argparse.Namespace) -> None:
    from flows.errors import BadInput
    from flows.steps.released import import_released

    if not options.benchmark:
        raise BadInput("say with --benchmark which problem the released file is for")
    file = Path(options.what)
    folder = import_released(file, options.benchmark, options.name or file.stem, settings.root)
    print(json.dumps({"folder": str(folder)}) if options.json else f"kept as {folder}")


def runs(options: argparse.Namespace) -> None:
    """Send what processes that are gone left in their journals."""
    from dataclasses import asdict

    from flows.errors import CellsFailed
    from flows.steps.runs_sync import describe, sync
    from storage.run_journal import journal_folder

    settings = _settings()
    synced = sync(journal_folder(settings.root), settings.tracking_uri)
    if options.json:
        print(json.dumps([asdict(run) for run in synced]))
    else:
        print("\n".join(describe(synced)))
    if any(run.left for run in synced):
        raise CellsFailed("not everything could be sent; what waits is kept")


def stack(options: argparse.Namespace) -> None:
    """Start, stop or show the servers on this machine, or tell a server of the flows."""
    from flows import stack

    settings = _settings()
    if options.action == "deploy":
        stack.deploy(settings, os.environ)
        return
    if options.action == "up":
        stack.up(settings)
    elif options.action == "down":
        stopped = stack.down(settings)
        print(
            json.dumps(stopped) if options.json else f"stopped: {', '.join(stopped) or 'nothing'}"
        )
        return
    found = stack.status(settings)
    if options.json:
        print(json.dumps([{**vars(service), "runs": runs} for service, runs in found]))
        return
    for service, runs in found:
        print(f"{service.name:<15} {'runs' if runs else 'is down'}  {service.url}  {service.log}")
    if not found:
        print("nothing was started; `lsm stack up` does it")


def doctor(options: argparse.Namespace) -> None:
    """Look the installation over; exit code 1 if there is a problem."""
    from dataclasses import asdict

    from flows.settings import Settings, service_environment
    from flows.steps.doctor import examine

    settings = Settings.from_environment()
    found = []
    for finding in examine(settings, service_environment(settings), data=options.data):
        found.append(finding)
        if not options.json:
            print(finding.line(), flush=True)
    if options.json:
        print(json.dumps([asdict(finding) for finding in found]))
    if any(finding.state == "problem" for finding in found):
        raise SystemExit(1)


def _chosen(names: list[str] | None) -> Any:
    """Return the names, or None for all of them."""
    return None if names is None or "all" in names else names


def _show_results(results: list[dict[str, Any]], as_json: bool) -> None:
    from lsm_core.reporting.comparison import compare, text_table

    print(json.dumps(results) if as_json else text_table(compare(results)))


def _show_where(settings: "Settings", report: str, suite: str = "") -> None:
    """Say where to look further: the report, and the charts of a suite or of all runs."""
    from urllib.parse import quote

    from flows.steps.training import open_tracking
    from storage.errors import StoreUnavailable
    from storage.run_journal import without_credentials

    try:
        experiment = open_tracking(settings.tracking_uri, settings.root).experiment_id
    except StoreUnavailable as error:
        print(f"\nReport:  {_shown(report)}\nMLflow:  {error}; `lsm runs sync` sends what waits")
        return
    charts = f"#/experiments/{experiment}/runs?compareRunsMode=CHART"
    if suite:
        wanted = f"tags.suite = '{suite}'"
        charts += f"&searchFilter={quote(wanted)}"
    print(f"\nReport:  {_shown(report)}")
    if settings.tracking_uri.startswith("http"):
        print(f"MLflow:  {without_credentials(settings.tracking_uri)}/{charts}")
        return
    port = settings.mlflow_port
    mlflow = _shown(str(Path(sys.executable).parent / "mlflow"))
    print(f"MLflow:  {mlflow} server --backend-store-uri {settings.tracking_uri} --port {port}")
    print(f"         then open http://127.0.0.1:{port}/{charts}")


def _shown(place: str) -> str:
    """Return a path below this folder as a relative one, anything else as it is."""
    path = place.removeprefix("file://")
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
