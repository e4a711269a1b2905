"""The command `lsm`. Heavy packages are imported inside the commands: help answers at once."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from lsm_core.names import PRESET_PURPOSES, BenchmarkName, ModelName, PresetName

if TYPE_CHECKING:
    from flows.settings import Settings

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    options = parser().parse_args(arguments)
    if options.store:
        os.environ["LSM_STORE"] = options.store
    from flows.errors import BAD_INPUT, FAILURES

    try:
        options.run(options)
    except KeyboardInterrupt:
        print("lsm: interrupted; what was done is kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BAD_INPUT as error:
        print(f"lsm: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except FAILURES as error:
        print(f"lsm: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


class OneSentenceParser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        print(f"{self.prog}: {message}; `{self.prog} --help` explains", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)


def parser() -> argparse.ArgumentParser:
    """Return the command line: verbs and names, few options."""
    shared = OneSentenceParser(add_help=False)
    shared.add_argument("--store", metavar="URL", help="root of data and results (LSM_STORE)")
    shared.add_argument("--json", action="store_true", help="print a result for programs")
    preset = OneSentenceParser(add_help=False)
    preset.add_argument("--preset", choices=get_args(PresetName), default="quick")

    top = OneSentenceParser(prog="lsm", description="A workbench for neural PDE solvers.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def verb(name: str, run: Any, text: str, *parents: Any) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text, parents=[shared, *parents])
        made.set_defaults(run=run)
        return made

    shown = verb("list", _list, "Show benchmarks, models and presets, or one data card.")
    shown.add_argument("name", nargs="?", choices=get_args(BenchmarkName), metavar="BENCHMARK")
    prepare = verb("prepare", _prepare, "Generate the data of benchmarks.", preset)
    prepare.add_argument("names", nargs="*", choices=[*get_args(BenchmarkName), []])
    prepare.add_argument("--all", action="store_true", help="every benchmark")
    prepare.add_argument(
        "--resolution",
        type=_positive,
        action="append",
        metavar="N",
        help="points along each axis; may be given several times",
    )
    prepare.add_argument(
        "--official", action="store_true", help="download and convert the published files instead"
    )
    prepare.add_argument(
        "--from",
        dest="mirrors",
        action="append",
        metavar="URL",
        help="place to ask for official files first (LSM_MIRRORS); implies --official",
    )
    prepare.add_argument("--stride", type=_positive, metavar="N", help="every N-th official point")
    prepare.add_argument(
        "--export", metavar="FOLDER", help="write the generated data as official files, too"
    )
    train = verb("train", _train, "Train one model on one benchmark.", preset)
    train.add_argument("model", choices=get_args(ModelName))
    train.add_argument("benchmark", choices=get_args(BenchmarkName))
    train.add_argument("--seed", type=_seed, default=0)
    bench = verb("benchmark", _benchmark, "Prepare, train, compare and report.", preset)
    bench.add_argument("--benchmarks", nargs="+", choices=[*get_args(BenchmarkName), "all"])
    bench.add_argument("--models", nargs="+", choices=[*get_args(ModelName), "all"])
    bench.add_argument("--seeds", nargs="+", type=_seed, default=[0])
    report = verb("report", _report, "Write the report of runs, or pictures of the data.", preset)
    report.add_argument("about", nargs="?", choices=("runs", "data"), default="runs")
    study = verb("study", _study, "Run a study: efficiency measures what models cost.")
    study.add_argument("name", choices=("efficiency",))
    study.add_argument("--models", nargs="+", choices=get_args(ModelName), default=["lsm", "fno"])
    study.add_argument("--sizes", nargs="+", type=_positive, default=[64, 128, 256, 512, 1024])
    registry = verb("registry", _registry, "Import the authors' released checkpoints.")
    registry.add_argument("action", choices=("import",))
    registry.add_argument("file", type=Path)
    registry.add_argument("--benchmark", required=True, choices=get_args(BenchmarkName))
    registry.add_argument("--name", help="what to call it; the file's name otherwise")
    stack = verb("stack", _stack, "Start, stop or show the servers on this machine.")
    stack.add_argument("action", choices=("up", "down", "status"))
    return top


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is expected, got {text!r}")
    return int(text)


def _settings() -> "Settings":
    from flows.settings import Settings

    settings = Settings.from_environment()
    settings.require_usable()
    return settings


def _list(options: argparse.Namespace) -> None:
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


def _prepare(options: argparse.Namespace) -> None:
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


def _train(options: argparse.Namespace) -> None:
    from flows.errors import CellsFailed
    from flows.progress import shown_progress
    from flows.services import prefect_api

    with prefect_api(_settings()), shown_progress():
        from flows.train import train

        results = train([options.benchmark], [options.model], options.preset, [options.seed])
    if "error" in results[0]:
        raise CellsFailed(f"the training failed: {results[0]['error']}")
    _show_results(results, options.json)


def _benchmark(options: argparse.Namespace) -> None:
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
    _show_where(settings, outcome["report"])


def _report(options: argparse.Namespace) -> None:
    from flows.steps.report import stored_results, write_report

    settings = _settings()
    if options.about == "data":
        from flows.steps.data_report import write_data_report

        page = write_data_report(settings.root, options.preset)
        print(
            json.dumps({"report": str(page)}) if options.json else f"Report:  {_shown(str(page))}"
        )
        return
    report = write_report(stored_results(settings.root, options.preset), settings.root)
    if options.json:
        print(json.dumps({"report": str(report.page)}))
    else:
        print(report.markdown)
        _show_where(settings, str(report.page))


def _study(options: argparse.Namespace) -> None:
    from flows.progress import current_progress, shown_progress
    from flows.steps.efficiency import log_efficiency, measure_efficiency
    from lsm_core.reporting.efficiency import efficiency_table

    settings = _settings()
    with shown_progress():
        costs = measure_efficiency(
            options.models, options.sizes, settings.n_workers, current_progress()
        )
    log_efficiency(costs, settings.tracking_uri, settings.root)
    print(json.dumps(costs) if options.json else efficiency_table(costs))


def _registry(options: argparse.Namespace) -> None:
    from flows.steps.released import import_released

    name = options.name or options.file.stem
    folder = import_released(options.file, options.benchmark, name, _settings().root)
    print(json.dumps({"folder": str(folder)}) if options.json else f"kept as {folder}")


def _stack(options: argparse.Namespace) -> None:
    from flows import stack

    settings = _settings()
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


def _chosen(names: list[str] | None) -> Any:
    """Return the names, or None for all of them."""
    return None if names is None or "all" in names else names


def _show_results(results: list[dict[str, Any]], as_json: bool) -> None:
    from lsm_core.reporting.comparison import compare, text_table

    print(json.dumps(results) if as_json else text_table(compare(results)))


def _show_where(settings: "Settings", report: str) -> None:
    """Say where to look further."""
    from flows.steps.training import open_tracking

    experiment = open_tracking(settings.tracking_uri, settings.root).experiment_id
    charts = f"#/experiments/{experiment}/runs?compareRunsMode=CHART"
    print(f"\nReport:  {_shown(report)}")
    if settings.tracking_uri.startswith("http"):
        print(f"MLflow:  {settings.tracking_uri}/{charts}")
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


if __name__ == "__main__":
    sys.exit(main())
