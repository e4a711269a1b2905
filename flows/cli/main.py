"""The command `lsm`: its verbs and names, few options."""

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args

from flows.cli import data, ingest, models, operations, results, training
from lsm_core.names import (
    OWN_NAME,
    BenchmarkName,
    ModelName,
    Precision,
    PresetName,
    StudyName,
)

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
"""What Prefect and MLflow must find before they are imported, or they report what is done."""
BENCHMARKS, MODELS, PRESETS = get_args(BenchmarkName), get_args(ModelName), get_args(PresetName)

PROBLEMS = f"{', '.join(BENCHMARKS)}, or a name of your own data"

Verbs = Any
"""What argparse adds commands to; its type has no public name."""
Argument = tuple[str, dict[str, Any]]
STORE: Argument = ("--store", {"metavar": "URL", "help": "root of all data (LSM_STORE)"})
JSON: Argument = ("--json", {"action": "store_true", "help": "print a result for programs"})
PRESET: Argument = (
    "--preset",
    {
        "choices": PRESETS,
        "default": "quick",
        "metavar": "PRESET",
        "help": f"{', '.join(PRESETS)}; quick if none",
    },
)
OFFICIAL: Argument = (
    "--official",
    {
        "action": "store_true",
        "help": "on the published files instead of generated data; LSM_MIRRORS is asked first",
    },
)

PRECISION: Argument = (
    "--precision",
    {"choices": get_args(Precision), "help": "of products and convolutions; tf32, bfloat16: GPUs"},
)
COMPILE: Argument = (
    "--compile",
    {"action": "store_true", "default": None, "help": "let torch compile the model; for GPUs"},
)
DEVICE: Argument = (
    "--device",
    {"metavar": "NAME", "help": "cpu, cuda, cuda:1, mps or auto (LSM_DEVICE)"},
)
COMPUTING = (PRECISION, COMPILE, DEVICE)


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)
    options = parser().parse_args(arguments)
    if options.store:
        os.environ["LSM_STORE"] = options.store
    from flows.errors import BAD_INPUT, FAILURES

    try:
        _require_problems(options)
        options.run(options)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has enough; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("lsm: interrupted; what was done is kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (*BAD_INPUT, *FAILURES) as error:
        print(f"lsm: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT if isinstance(error, BAD_INPUT) else EXIT_FAILED
    return 0


class OneSentenceParser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        print(f"{self.prog}: {message}; `{self.prog} --help` explains", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = OneSentenceParser(prog="lsm", description="A workbench for neural PDE solvers.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    _add_data(verbs)
    _add_training(verbs)
    _add_results(verbs)
    _add_models(verbs)
    _add_operations(verbs)
    return top


def _add(
    verbs: Verbs, name: str, run: Callable[[argparse.Namespace], None], *shared: Argument
) -> argparse.ArgumentParser:
    """Return the parser of a new command, whose text is the first line of what runs."""
    text = str(run.__doc__).partition("\n")[0]
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    made.set_defaults(run=run)
    for argument, settings in (STORE, JSON, *shared):
        made.add_argument(argument, **settings)
    return made


def _add_data(verbs: Verbs) -> None:
    shown = _add(verbs, "list", data.list_names)
    shown.add_argument("name", nargs="?", type=_problem, metavar="BENCHMARK")
    _add_ingest(verbs)
    prepare = _add(verbs, "prepare", data.prepare, PRESET)
    prepare.add_argument("names", nargs="*", type=_problem, metavar="BENCHMARK")
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


def _add_ingest(verbs: Verbs) -> None:
    made = _add(verbs, "ingest", ingest.ingest)
    made.add_argument("files", nargs="+", type=Path, help="files, or folders of them")
    made.add_argument("--as", dest="name", metavar="NAME", help="of the problem")
    made.add_argument("--look", action="store_true", help="show what the files hold, and no more")
    made.add_argument("--declare", type=Path, metavar="FILE.toml", help="what the files hold")
    for flag, said in (
        ("--inputs", "arrays that predictions are made from"),
        ("--parameters", "inputs that are numbers of a sample, not fields"),
        ("--targets", "arrays to predict"),
        ("--positions", "where the points are: an array, or one for each coordinate"),
    ):
        made.add_argument(flag, nargs="+", default=[], metavar="ARRAY", help=said)
    made.add_argument(
        "--volume",
        default="",
        metavar="ARRAY",
        help="of the cell around a point; of meshes it is known, and `none` leaves it out",
    )
    made.add_argument(
        "--at",
        choices=("points", "cells"),
        help="where values of a mesh are to stand: its points, or centroids of its cells; where "
        "the targets do if not said",
    )
    made.add_argument("--frames", default="", metavar="1:", help="of targets over time; -1 is last")
    made.add_argument(
        "--axes",
        action="append",
        default=[],
        metavar="ARRAY=AXIS,...",
        help="sample, point, x, y, z, time, component; a.b are two that the file stores as one",
    )
    made.add_argument("--unit", action="append", default=[], metavar="ARRAY=UNIT")
    made.add_argument("--geometry", choices=("grid", "mesh", "points"))
    made.add_argument("--each", action="store_true", help="each file is one sample")
    made.add_argument("--periodic", action="store_true", help="the ends of each axis meet")
    made.add_argument(
        "--rollout",
        action=argparse.BooleanOptionalAction,
        help="predict frames one from those before, or all at once",
    )
    made.add_argument(
        "--split",
        default="",
        metavar="HOW",
        help="800,100,100 of all in random order, first=800,100,100 in that of the files, file "
        "(names say train, valid, test), or column=ARRAY of 0, 1 and 2",
    )
    made.add_argument("--duplicates", action="store_true", help="a sample may be there twice")
    made.add_argument("--title", default="", help="what reports call it")
    made.add_argument("--yes", action="store_true", help="take what is guessed, ask nothing")


def _add_training(verbs: Verbs) -> None:
    train = _add(verbs, "train", training.train, PRESET, OFFICIAL, *COMPUTING)
    train.add_argument("model", choices=MODELS, metavar="MODEL", help="`lsm list` names them")
    train.add_argument("benchmark", type=_problem, metavar="BENCHMARK", help=PROBLEMS)
    train.add_argument("--seed", type=_seed, default=0)
    train.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="start from the weights of a benchmark's model, of a finished run by its identity, or "
        "of a model: airfoil@champion, which is registered, or darcy@shipped",
    )
    train.add_argument("--freeze", nargs="+", metavar="PART", help="parts that stay as they were")
    train.add_argument("--fraction", type=float, help="part of the training samples to use")
    train.add_argument("--epochs", type=_positive)
    train.add_argument("--batch-size", type=_positive)
    train.add_argument("--accumulation", type=_positive, metavar="N", help="parts of a batch")
    train.add_argument("--learning-rate", type=float)
    train.add_argument(
        "--shuffle-bytes",
        type=_positive,
        metavar="N",
        help="window in which larger sets are shuffled, at most LSM_MEMORY; 1 GiB",
    )
    train.add_argument("--selection", choices=("last", "best_validation", "best_test"))
    train.add_argument("--ranks", type=_positive, default=1, help="processes that train together")
    bench = _add(verbs, "benchmark", training.benchmark, PRESET, OFFICIAL, *COMPUTING)
    bench.add_argument(
        "--benchmarks", nargs="+", type=_problem, metavar="NAME", help=f"{PROBLEMS}; or all"
    )
    bench.add_argument(
        "--models",
        nargs="+",
        choices=[*MODELS, "all"],
        metavar="NAME",
        help="`lsm list` names them; or all",
    )
    bench.add_argument("--seeds", nargs="+", type=_seed, default=[0])
    study = _add(verbs, "study", training.study, PRESET, OFFICIAL, *COMPUTING)
    names = ("efficiency", *get_args(StudyName))
    study.add_argument("name", choices=names, metavar="STUDY", help=", ".join(names))
    study.add_argument("--seeds", nargs="+", type=_seed, help="0; for stability 0 1 2 3 4")
    study.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        metavar="NAME",
        help="for efficiency the paper's if none, for resolutions and transfer later ones, too; "
        "for stability, lsm if none; the other studies are of LSM alone",
    )
    study.add_argument("--rows", nargs="+", metavar="ROW", help="rows of the table; all if none")
    study.add_argument(
        "--benchmarks",
        nargs="+",
        type=_problem,
        metavar="NAME",
        help="for stability, all if none; for ablations, the paper's seven at paper and release, "
        "elasticity_p and darcy at smaller presets if none; for full-length and ablations-ours, "
        "burgers, darcy and elasticity_g if none; for budgets, burgers, darcy and airfoil if none",
    )
    study.add_argument(
        "--sizes",
        nargs="+",
        type=_positive,
        metavar="N",
        help="for efficiency, points along a side; the paper's 64 to 1024 if none",
    )
    study.add_argument(
        "--estimate",
        action="store_true",
        help="for efficiency: measure nothing, estimate steps on GPUs that are not here",
    )


def _add_results(verbs: Verbs) -> None:
    report = _add(verbs, "report", results.report)
    said = "only its runs; all if none is named (of data: quick)"
    report.add_argument("--preset", choices=PRESETS, metavar="PRESET", help=said)
    report.add_argument("about", nargs="?", choices=("runs", "data", "results"), default="runs")
    report.add_argument("--out", default="RESULTS.md", help="page of all `results`; RESULTS.md")
    report.add_argument("--note", default="", help="a remark for the page of `results`")
    board = _add(verbs, "board", results.board)
    said = "only its runs; all if none is named"
    board.add_argument("--preset", choices=PRESETS, metavar="PRESET", help=said)
    board.add_argument("--out", type=Path, metavar="FOLDER", help="for one CSV a task, too")
    board.add_argument(
        "--solvers",
        action="store_true",
        help="measure the problems' own solvers first, each as coarse as LSM (ours) is fast",
    )
    _add(verbs, "runs", results.runs).add_argument("action", choices=("sync",))


def _add_models(verbs: Verbs) -> None:
    predict = _add(verbs, "predict", models.predict)
    predict.add_argument(
        "model",
        help="darcy and others come with the project; or the identity of a run, pde-NAME@champion, "
        "a model folder",
    )
    predict.add_argument(
        "input",
        type=Path,
        nargs="?",
        help="file with the inputs: "
        ".zarr, .nc, .npz, .mat, .npy, .h5, .hdf5, .pt, .csv, .txt, .dat or a mesh; of your own "
        "problem a folder of files, too",
    )
    predict.add_argument(
        "--out", type=Path, help="file or folder of predictions; INPUT_predicted.npz"
    )
    predict.add_argument(
        "--seed",
        type=_seed,
        help="a sample of the problem in place of a file, one that no model was trained on",
    )
    predict.add_argument(
        "--check", action="store_true", help="solve the sample of --seed, too, and show both"
    )
    predict.add_argument("--plot", type=Path, metavar="FILE.svg")
    predict.add_argument("--vtk", type=Path, metavar="FILE.vtk")
    explore = _add(verbs, "explore", models.explore)
    explore.add_argument("--port", type=_positive, default=8765)
    serve = _add(verbs, "serve", models.serve)
    serve.add_argument("benchmark", type=_problem, help=PROBLEMS)
    serve.add_argument(
        "--alias", default="champion", help="champion, champion-paper, previous, ..."
    )
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=_positive, default=5001)
    registry = _add(verbs, "registry", models.registry)
    registry.add_argument(
        "action", choices=("list", "add", "history", "promote", "rollback", "import")
    )
    registry.add_argument(
        "what",
        nargs="?",
        help="a run's identity to add, pde-NAME/VERSION to promote, a problem to roll back or to "
        "tell the history of, a released file to import",
    )
    registry.add_argument("--why", help="the reason to promote or roll back, which is kept")
    registry.add_argument("--alias", choices=("champion", "challenger"), help="of what is added")
    registry.add_argument(
        "--benchmark", choices=BENCHMARKS, metavar="NAME", help="of a released file"
    )
    registry.add_argument("--name", help="what to call a released file; its own name otherwise")


def _add_operations(verbs: Verbs) -> None:
    stack = _add(verbs, "stack", operations.stack)
    stack.add_argument(
        "action",
        choices=("up", "down", "status", "deploy", "backup", "restore"),
        help="deploy tells the server at PREFECT_API_URL of the flows; up does it, too; backup and "
        "restore copy the databases",
    )
    stack.add_argument("folder", nargs="?", type=Path, help="of the copies, to backup and restore")
    store = _add(verbs, "store", operations.store)
    store.add_argument("action", choices=("prune",), help="show what nothing refers to")
    store.add_argument("--free", action="store_true", help="and free it")
    doctor = _add(verbs, "doctor", operations.doctor)
    doctor.add_argument("--data", action="store_true", help="read every dataset, too")


def _problem(text: str) -> str:
    """Return the name of a problem, if it may be one; which a store has is looked up later."""
    if not re.match(OWN_NAME, text):
        known = ", ".join(BENCHMARKS)
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {known})")
    return text


def _require_problems(options: argparse.Namespace) -> None:
    """Raise BadInput for a name that is neither a benchmark nor that of data in the store."""
    given = vars(options)
    names: list[Any] = [*(given.get("names") or []), *(given.get("benchmarks") or [])]
    names.append(given.get("benchmark"))
    if options.verb == "list":
        names.append(options.name)
    if own := [name for name in names if name not in (None, "all", *BENCHMARKS)]:
        from flows.settings import Settings
        from flows.steps.data.given import record_of

        root = Settings.from_environment().root
        for name in own:
            record_of(name, root)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is expected, got {text!r}")
    return int(text)
