"""The command line: verbs and names, few options."""

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn, get_args

from flows.cli import data, models, operations, results, training
from lsm_core.names import BenchmarkName, ModelName, PresetName, StudyName

EXIT_BAD_INPUT = 2


class OneSentenceParser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        print(f"{self.prog}: {message}; `{self.prog} --help` explains", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)


class Verbs:
    """The commands of `lsm`, as they are added one after the other."""

    def __init__(self) -> None:
        self.shared = OneSentenceParser(add_help=False)
        self.shared.add_argument("--store", metavar="URL", help="root of all data (LSM_STORE)")
        self.shared.add_argument("--json", action="store_true", help="print a result for programs")
        self.preset = OneSentenceParser(add_help=False)
        self.preset.add_argument("--preset", choices=get_args(PresetName), default="quick")
        self.official = OneSentenceParser(add_help=False)
        self.official.add_argument(
            "--official",
            action="store_true",
            help="on the published files instead of generated data; LSM_MIRRORS is asked first",
        )
        self.top = OneSentenceParser(prog="lsm", description="A workbench for neural PDE solvers.")
        self.verbs = self.top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def add(self, name: str, run: Any, text: str, *parents: Any) -> argparse.ArgumentParser:
        """Return the parser of a new command."""
        parents = (self.shared, *parents)
        made: argparse.ArgumentParser = self.verbs.add_parser(
            name, help=text, description=text, parents=parents
        )
        made.set_defaults(run=run)
        return made


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    verbs = Verbs()
    _add_data(verbs)
    _add_training(verbs)
    _add_results(verbs)
    _add_models(verbs)
    stack = verbs.add("stack", operations.stack, "Start, stop or show the servers on this machine.")
    stack.add_argument(
        "action",
        choices=("up", "down", "status", "deploy", "backup", "restore"),
        help="deploy tells the server at PREFECT_API_URL of the flows; up does it, too; backup and "
        "restore copy the databases",
    )
    stack.add_argument("folder", nargs="?", type=Path, help="of the copies, to backup and restore")
    doctor = verbs.add("doctor", operations.doctor, "Look the installation over, a line a check.")
    doctor.add_argument("--data", action="store_true", help="read every dataset, too")
    return verbs.top


def _add_data(verbs: Verbs) -> None:
    shown = verbs.add(
        "list", data.list_names, "Show benchmarks, models and presets, or one data card."
    )
    shown.add_argument("name", nargs="?", choices=get_args(BenchmarkName), metavar="BENCHMARK")
    prepare = verbs.add("prepare", data.prepare, "Make the data of benchmarks.", verbs.preset)
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


def _add_training(verbs: Verbs) -> None:
    train = verbs.add(
        "train",
        training.train,
        "Train one model on one benchmark.",
        verbs.preset,
        verbs.official,
    )
    train.add_argument("model", choices=get_args(ModelName))
    train.add_argument("benchmark", choices=get_args(BenchmarkName))
    train.add_argument("--seed", type=_seed, default=0)
    train.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help="start from the weights of a benchmark's model, or of a finished run by its identity",
    )
    train.add_argument("--freeze", nargs="+", metavar="PART", help="parts that stay as they were")
    train.add_argument("--fraction", type=float, help="part of the training samples to use")
    train.add_argument("--epochs", type=_positive)
    train.add_argument("--batch-size", type=_positive)
    train.add_argument("--learning-rate", type=float)
    train.add_argument("--selection", choices=("last", "best_validation", "best_test"))
    train.add_argument("--ranks", type=_positive, default=1, help="processes that train together")
    bench = verbs.add(
        "benchmark",
        training.benchmark,
        "Prepare, train, compare and report.",
        verbs.preset,
        verbs.official,
    )
    bench.add_argument("--benchmarks", nargs="+", choices=[*get_args(BenchmarkName), "all"])
    bench.add_argument("--models", nargs="+", choices=[*get_args(ModelName), "all"])
    bench.add_argument("--seeds", nargs="+", type=_seed, default=[0])
    study = verbs.add(
        "study",
        training.study,
        "Run a study; efficiency trains nothing.",
        verbs.preset,
        verbs.official,
    )
    study.add_argument("name", choices=("efficiency", *get_args(StudyName)))
    study.add_argument("--seeds", nargs="+", type=_seed, help="0; for stability 0 1 2 3 4")
    study.add_argument(
        "--models",
        nargs="+",
        choices=get_args(ModelName),
        help="for efficiency, resolutions and transfer, the paper's if none; for stability, lsm if "
        "none; the other studies are of LSM alone",
    )
    study.add_argument("--rows", nargs="+", metavar="ROW", help="rows of the table; all if none")
    study.add_argument(
        "--benchmarks",
        nargs="+",
        choices=get_args(BenchmarkName),
        help="for stability, all if none; for ablations, the paper's seven at paper and release, "
        "elasticity_p and darcy at smaller presets if none",
    )
    study.add_argument(
        "--sizes",
        nargs="+",
        type=_positive,
        metavar="N",
        help="for efficiency, points along a side; the paper's 64 to 1024 if none",
    )


def _add_results(verbs: Verbs) -> None:
    report = verbs.add(
        "report",
        results.report,
        "Write the report of runs or pictures of data.",
    )
    report.add_argument(
        "--preset",
        choices=get_args(PresetName),
        help="only its runs; all if none is named (of data: quick)",
    )
    report.add_argument("about", nargs="?", choices=("runs", "data", "results"), default="runs")
    report.add_argument("--out", default="RESULTS.md", help="page of all `results`; RESULTS.md")
    report.add_argument("--note", default="", help="a remark for the page of `results`")
    runs = verbs.add("runs", results.runs, "Send what MLflow lacks of all that the store holds.")
    runs.add_argument("action", choices=("sync",))


def _add_models(verbs: Verbs) -> None:
    predict = verbs.add("predict", models.predict, "Predict fields with a trained model.")
    predict.add_argument("model", help="identity of a run, lsm-NAME@champion, or a model folder")
    predict.add_argument("input", type=Path, help=".zarr, .nc, .npz or .mat file with the inputs")
    predict.add_argument("--out", type=Path, required=True, help="file for the predictions")
    predict.add_argument("--plot", type=Path, metavar="FILE.svg")
    predict.add_argument("--vtk", type=Path, metavar="FILE.vtk")
    registry = verbs.add("registry", models.registry, "Keep, show and promote trained models.")
    registry.add_argument("action", choices=("list", "add", "promote", "import"))
    registry.add_argument(
        "what",
        nargs="?",
        help="a run's identity to add, lsm-NAME/VERSION to promote, a released file to import",
    )
    registry.add_argument("--alias", choices=("champion", "challenger"), help="of what is added")
    registry.add_argument("--benchmark", choices=get_args(BenchmarkName), help="of a released file")
    registry.add_argument("--name", help="what to call a released file; its own name otherwise")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is expected, got {text!r}")
    return int(text)
