"""Write the report of a comparison into the store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.errors import BadInput
from flows.steps.showcase import SHOWN_SAMPLES, showcase_panels
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.names import BenchmarkName
from lsm_core.reporting.comparison import Row, compare, markdown_table
from lsm_core.reporting.document import Picture, html_page
from lsm_core.reporting.figures import showcase, training_curves
from lsm_core.reporting.leaderboard import leaderboard
from storage.checkpoints import Checkpoints
from storage.location import Location

ABOUT_THE_METRIC = (
    "Error: mean relative L2 norm over the test samples, at the last epoch. "
    "Paper: the figure published for the paper's own data, sizes and 500 epochs; "
    "other presets are smaller, so the two columns are not a like-for-like comparison."
)


@dataclass(frozen=True)
class Report:
    """Where a report lies, and its table."""

    page: Location
    markdown: str
    rows: list[Row]


def write_report(results: Sequence[dict[str, Any]], root: Location) -> Report:
    """Write page, Markdown and data of some results of one preset, and return where."""
    if not results:
        raise BadInput("there are no results to report; run `lsm benchmark` first")
    preset = results[0]["preset"]
    folder = root / "reports" / f"benchmark-{preset}"
    rows = compare(results)
    title = f"Benchmark, preset {preset}"
    page = html_page(title, ABOUT_THE_METRIC, rows, _pictures(results, root), _facts(results))
    markdown = f"# {title}\n\n{leaderboard(rows)}\n\n{markdown_table(rows)}\n\n{ABOUT_THE_METRIC}\n"
    (folder / "results.json").write_bytes(json.dumps(results, indent=1).encode())
    (folder / "report.md").write_bytes(markdown.encode())
    (folder / "index.html").write_bytes(page.encode())
    return Report(folder / "index.html", markdown, rows)


def _pictures(results: Sequence[dict[str, Any]], root: Location) -> list[Picture]:
    pictures = []
    for benchmark in dict.fromkeys(result["benchmark"] for result in results):
        done = {
            result["model"]: result
            for result in reversed(results)  # the first seed of each model is shown
            if result["benchmark"] == benchmark and "error" not in result
        }
        if done:
            pictures += _pictures_of(benchmark, dict(sorted(done.items())), root)
    return pictures


def _pictures_of(
    benchmark: BenchmarkName, done: dict[str, dict[str, Any]], root: Location
) -> list[Picture]:
    shown = {
        model: Checkpoints(root / "checkpoints" / done[model]["identity"]).arrays("showcase")
        for model in _shown_models(done)
    }
    first = next(iter(done.values()))
    problem = BENCHMARKS[benchmark](**first["settings"]["data"]["parameters"])
    pictures = []
    for sample in range(SHOWN_SAMPLES):
        truth, predicted = showcase_panels(problem, shown, sample)
        caption = f"{problem.title}: test sample {sample + 1}, predictions and their errors."
        pictures.append(Picture(showcase(truth, predicted), caption))
        if len(truth[-1].positions) > 1:
            break  # a line takes little room; of larger pictures one is enough
    curves = training_curves({model: result["history"] for model, result in done.items()})
    return [*pictures, Picture(curves, f"{problem.title}: error while training, logarithmic.")]


def _shown_models(done: dict[str, dict[str, Any]]) -> list[str]:
    """Return LSM and the two best of the others."""
    others = sorted((m for m in done if m != "lsm"), key=lambda m: done[m]["test"]["rel_l2"])
    return [model for model in ("lsm", *others[:2]) if model in done]


def _facts(results: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what a reader needs to run the same again."""
    facts = []
    for result in results:
        name = f"{result['benchmark']} {result['model']} seed {result['seed']}"
        if "error" in result:
            facts.append((name, f"failed: {result['error']}"))
            continue
        environment = result["environment"]
        facts.append(
            (
                name,
                f"{result['n_train']} training samples, {result['epochs']} epochs, "
                f"finished {result['finished']}, on {environment['device']} "
                f"({environment['machine']}, torch {environment['torch']}); "
                f"predicting the mean gives {result['mean_prediction']:.4f}; "
                f"protocol {result['protocol']}, data {result['dataset']['digest'][:16]}, "
                f"code {result['code']}",
            )
        )
    return facts
