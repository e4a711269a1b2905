"""Write the page of results that is kept with the sources: every figure with what it rests on."""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from flows.errors import BadInput
from flows.steps.reports.results import ALONE, BENCHMARK, read_outcomes, stored_costs
from lsm_core.reporting.charts import MOST_LINES, training_curves
from lsm_core.reporting.comparison import compare, grouped, row_name
from lsm_core.reporting.document import Block, Folded, Picture, Section, markdown_page
from lsm_core.reporting.efficiency import efficiency_blocks
from lsm_core.reporting.tables import (
    Table,
    comparison_table,
    leaderboard_table,
    provenance_table,
)
from lsm_core.result import ALONE as MADE_ALONE
from lsm_core.result import Result, marked
from lsm_core.studies.catalogue import STUDIES, study_of
from storage.location import Location

ASSETS = Path("tests/measurements/results")
"""Where pictures and data of the page lie, beside it."""

MAIN_TITLE = "Every model on every benchmark"
MAIN_TEXT = (
    "All models are trained in the same way. Preset quick has small data and short training, so "
    "that the whole table can be rerun on a laptop."
)


def write_results_page(root: Location, page: Path, note: str = "") -> list[Path]:
    """Write the page, its pictures and its data, and return the files.

    `note` is what else a reader should know of these runs.
    """
    results = read_outcomes(root).results
    if not results:
        raise BadInput("there are no results to report; run `lsm benchmark` first")
    assets = page.parent / ASSETS
    assets.mkdir(parents=True, exist_ok=True)
    sections, pictures = [], []
    for name, section in _sections(results):
        for picture in (block for block in section.blocks if isinstance(block, Picture)):
            pictures.append(assets / f"{name}.svg")
            pictures[-1].write_text(picture.svg, encoding="utf-8")
        sections.append(section)
    tables = [block for block in efficiency_blocks(stored_costs(root)) if isinstance(block, Table)]
    sections += [Section("Cost of models", tuple(tables))] if tables else []
    data = assets / "results.json"
    kept = [{k: v for k, v in r.to_plain().items() if k != "history"} for r in results]
    data.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    places = [f"{ASSETS}/{picture.name}" for picture in pictures]
    about = "\n\n".join(part for part in (_about(results), note) if part)
    page.write_text(markdown_page("Results", about, sections, places), encoding="utf-8")
    return [page, data, *pictures]


def _about(results: Sequence[Result]) -> str:
    ours = all(result.origin == "generated" for result in results)
    whose = "Every run is" if ours else "Runs whose title names no data are"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
    return (
        f"Errors are mean relative L2 norms over the test samples. {whose} on data of our own "
        "solvers, with the sizes named below; the column Paper is the published figure on the "
        "published data and sizes, where the paper has that very row. `lsm report results` "
        f"writes this page from the runs in a store. Machine: {machine}."
    )


def _sections(results: Sequence[Result]) -> Iterator[tuple[str, Section]]:
    """Yield names and sections: studies by preset and kind of data, then runs made alone."""
    studies = grouped(
        (result for result in results if result.study not in MADE_ALONE),
        lambda result: (result.study, result.preset),
    )
    for study, preset in sorted(studies, key=lambda key: (_place(key[0]), key)):
        known = study_of(study)
        words = (MAIN_TITLE, MAIN_TEXT) if study == BENCHMARK else (known.title, known.text)
        title, text = f"{words[0]}, preset {preset}", words[1]
        for origin, some in grouped(studies[study, preset], lambda result: result.origin).items():
            name = some[0].suite
            name = name if origin in ("generated", "official") else f"{name}-{origin}"
            yield name, _section(marked(title, origin), text, some)
    alone = [result for result in results if result.study == ALONE]
    for (benchmark, origin), some in grouped(alone, lambda r: (r.benchmark, r.origin)).items():
        epochs = max(result.epochs for result in some)
        text = f"Single runs of up to {epochs} epochs; the presets are in the data beside the page."
        name = f"single-{benchmark}{'' if origin == 'generated' else f'-{origin}'}"
        yield name, _section(marked(f"Long runs on {benchmark}", origin), text, some)


def _place(study: str) -> int:
    """Return where a study stands: the main table first, then in the order of their table."""
    return [BENCHMARK, *STUDIES, study].index(study)


def _section(title: str, text: str, results: Sequence[Result]) -> Section:
    rows = compare(results)
    is_one = len({row.benchmark for row in rows}) == 1
    blocks: list[Block] = [text]
    blocks += [] if is_one else [leaderboard_table(rows)]
    blocks.append(comparison_table(rows))
    curves = {row_name(result): [result.history] for result in results}
    if is_one and len(curves) <= MOST_LINES:
        caption = "Error on validation samples against the epoch"
        blocks.append(Picture(training_curves(curves), caption))
    blocks.append(Folded("What each run rests on", provenance_table(results)))
    return Section(title, tuple(blocks))
