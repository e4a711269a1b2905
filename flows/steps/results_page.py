"""Write the page of results that is kept with the sources, from the runs in a store."""

import json
import os
import platform
from pathlib import Path
from typing import Any

from flows.errors import BadInput
from flows.steps.report import TITLES
from flows.steps.stored_results import newest_results, stored_costs
from lsm_core.reporting.comparison import row_name
from lsm_core.reporting.efficiency import efficiency_blocks
from lsm_core.reporting.figures import training_curves
from lsm_core.reporting.origin import marked, origin_of
from lsm_core.reporting.results_page import Section, results_page
from lsm_core.reporting.seeds import Result, grouped
from lsm_core.reporting.study_sections import MOST_CURVES
from lsm_core.reporting.table import Table
from storage.location import Location

ASSETS = Path("lsm_core/reporting/measured")
"""Where pictures and data of the page lie, beside it."""

SUITES = {
    "benchmark-quick": (
        "Every model on every benchmark, preset quick",
        "Small data and short training, so that the whole table can be rerun on a laptop. All "
        "models are trained in the same way; seed 0.",
    ),
    "burgers-forms-paper": (
        "Burgers at 256 points, published protocol",
        "1000 training samples, 500 epochs, batch 20, Adam, the rate halved every 100 epochs; the "
        "last epoch counts. LSM in the released form and in the smooth form that the study of "
        "settings found.",
    ),
    "darcy-at-43-paper": (
        "Darcy at 43x43, 1000 samples",
        "Every tenth point of 421, normalized point by point, width 32, one-cycle, 60 epochs.",
    ),
    "burgers-settings-quick": (
        "LSM on Burgers: which settings?",
        "The paper's settings in one dimension were never published. From the released form, one "
        "change at a time, judged on validation samples; preset quick.",
    ),
    "transfer-quick": (
        "From pipe to airfoil, preset quick",
        "LSM on parts of the airfoil samples, from scratch and from the weights of the pipe model.",
    ),
}
"""Title and text of the suites that have some of their own, in their order."""
OTHER_SUITES = "A study of the paper or of this project; its protocol is in the table below."
"""What is said of all other suites, which follow."""
NOT_SUITES = ("train", "retrain")
"""Runs made one by one: those of `lsm train` have sections by benchmark."""


def write_results_page(root: Location, page: Path, note: str = "") -> list[Path]:
    """Write the page, its pictures and its data, and return the files."""
    results = newest_results(root)
    if not results:
        raise BadInput("there are no results to report; run `lsm benchmark` first")
    assets = page.parent / ASSETS
    assets.mkdir(parents=True, exist_ok=True)
    sections, written = [], []
    for name, title, text, some in _sections(results):
        picture, shown = assets / f"{name}.svg", ""
        curves = {row_name(result): result["history"] for result in some}
        if len({result["benchmark"] for result in some}) == 1 and len(curves) <= MOST_CURVES:
            picture.write_text(training_curves(curves), encoding="utf-8")
            written.append(picture)
            shown = f"{ASSETS}/{picture.name}"
        sections.append(Section(title=title, text=text, results=some, picture=shown))
    data = assets / "results.json"
    kept = [{k: v for k, v in result.items() if k != "history"} for result in results]
    data.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    tables = [block for block in efficiency_blocks(stored_costs(root)) if isinstance(block, Table)]
    costs = [table.markdown() for table in tables]
    page.write_text(results_page(sections, _machine(), note, costs), encoding="utf-8")
    return [page, data, *written]


def _sections(results: list[dict[str, Any]]) -> list[tuple[str, str, str, list[Result]]]:
    """Return name, title, text and results of every section."""
    made: list[tuple[str, str, str, list[Result]]] = []
    found = sorted({str(result["suite"]) for result in results if result.get("suite")})
    for suite in (*SUITES, *(suite for suite in found if suite not in (*SUITES, *NOT_SUITES))):
        title, text = SUITES.get(suite) or (_title(suite), OTHER_SUITES)
        own = [result for result in results if result.get("suite") == suite]
        for origin, some in grouped(own, origin_of).items():
            name = suite if origin in ("generated", "official") else f"{suite}-{origin}"
            made.append((name, marked(title, origin), text, some))
    single = [result for result in results if result.get("suite", "train") == "train"]
    for (benchmark, origin), some in grouped(single, _problem).items():
        epochs = max(result["epochs"] for result in some)
        text = f"Single runs of up to {epochs} epochs; the presets are in the data beside the page."
        name = f"single-{benchmark}{'' if origin == 'generated' else f'-{origin}'}"
        made.append((name, marked(f"Long runs on {benchmark}", origin), text, some))
    return made


def _problem(result: Result) -> tuple[str, str]:
    return str(result["benchmark"]), origin_of(result)


def _title(suite: str) -> str:
    """Return the title of a suite that has none of its own, from its name and preset."""
    name, _, preset = suite.removesuffix("-official").rpartition("-")
    known = {"benchmark": "Every model on every benchmark", **TITLES}
    return f"{known.get(name, f'Study {name}')}, preset {preset}" if name else suite


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
