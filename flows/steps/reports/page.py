"""Write pages of what a store holds: the report, the results kept with the sources, the data."""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.errors import BadInput
from flows.steps.data.datasets import location_of
from flows.steps.reports.board import measured_runs, write_board
from flows.steps.reports.pictures import benchmark_blocks, length_unit, solving_blocks
from flows.steps.reports.results import (
    ALONE,
    BENCHMARK,
    Comparison,
    read_outcomes,
    stored_costs,
)
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.experiments.protocols import PROTOCOLS
from lsm_core.names import PresetName
from lsm_core.reporting.board import SOLVER
from lsm_core.reporting.charts import MOST_LINES, training_curves
from lsm_core.reporting.comparison import Row, compare, finished, grouped, row_name
from lsm_core.reporting.document import (
    Block,
    Folded,
    Picture,
    Section,
    html_page,
    markdown_page,
)
from lsm_core.reporting.efficiency import Cost, efficiency_blocks
from lsm_core.reporting.figures import panel_figure
from lsm_core.reporting.protocol import protocol_table
from lsm_core.reporting.tables import (
    Table,
    comparison_table,
    leaderboard_table,
    provenance_table,
    target_table,
)
from lsm_core.result import ALONE as MADE_ALONE
from lsm_core.result import PUBLISHED, Outcome, Result, marked, suite_name
from lsm_core.studies.catalogue import STUDIES, study_blocks, study_cells, study_of
from storage.datasets.reader import open_dataset
from storage.errors import DatasetIncomplete, NotADataset
from storage.location import Location

ABOUT_THE_METRIC = (
    "Error: mean relative L2 norm over the test samples, at the last epoch. Paper: the figure "
    "published for the paper's own data, sizes and 500 epochs; other presets are smaller, so the "
    "two are not a like-for-like comparison. Axes without a unit are dimensionless."
)
OWN_SETTINGS = "Trained alone, with settings of their own"
ASSETS = Path("tests/measurements/results")
"""Where pictures and data of the page lie, beside it."""

MAIN_TITLE = "Every model on every benchmark"
MAIN_TEXT = (
    "All models are trained in the same way. Preset quick has small data and short training, so "
    "that the whole table can be rerun on a laptop."
)
N_SAMPLES = 3
"""How many samples of a dataset are drawn."""


@dataclass(frozen=True)
class Report:
    """Where a report lies, its text without pictures, and the rows of its main table."""

    page: Location
    markdown: str
    rows: list[Row]

    @property
    def name(self) -> str:
        """Return which report it is, as its folder is called."""
        return self.page.url.split("/")[-2]


@dataclass(frozen=True)
class _Part:
    """What a report has of one preset and kind of data."""

    of: Comparison
    main: list[Outcome]
    studies: dict[str, list[Outcome]]
    rows: list[Row]


def write_report(root: Location, preset: str | None = None, official: bool = False) -> Report:
    """Write the report of all that a store holds, or of one preset, or only on official data.

    The board is written beside it. Results on other kinds of data have tables of their own.
    BadInput if there is nothing to report.
    """
    outcomes, costs = read_outcomes(root), stored_costs(root)
    found = outcomes.comparisons()
    parts = []
    for one in found:
        if preset in (None, one.preset) and (one.origin in PUBLISHED or not official):
            main = outcomes.of_benchmark(one)
            parts.append(_Part(one, main, outcomes.of_studies(one), compare(main)))
    if not parts and not costs:
        there = f"; there are some of preset {', '.join(map(str, found))}" if found else ""
        raise BadInput(f"there are no results to report{there}; run `lsm benchmark` first")
    name, title = "all", "Report of all runs"
    if preset is not None:
        name = suite_name(BENCHMARK, preset, official)
        title = f"Report, preset {'; '.join(str(part.of) for part in parts)}"
    if any(finished(part.main) for part in parts):
        write_board(root, measured_runs(root))
    return _write(root / "reports" / name, title, _sections(parts, costs, root), parts)


def _write(
    folder: Location, title: str, sections: Sequence[Section], parts: Sequence[_Part]
) -> Report:
    """Write page, Markdown, pictures and data, and return where."""
    pictures = [picture for section in sections for picture in _pictures(section)]
    places = [f"figures/{number}.svg" for number in range(1, len(pictures) + 1)]
    for place, picture in zip(places, pictures, strict=True):
        (folder / place).write_bytes(picture.svg.encode())
    written = markdown_page(title, ABOUT_THE_METRIC, sections, places)
    data = [outcome.to_plain() for part in parts for outcome in part.main]
    (folder / "results.json").write_bytes(json.dumps(data, indent=1).encode())
    (folder / "report.md").write_bytes(written.encode())
    page = folder / "index.html"
    page.write_bytes(html_page(title, ABOUT_THE_METRIC, sections).encode())
    markdown = markdown_page(title, ABOUT_THE_METRIC, sections[:-1])  # without hashes
    return Report(page, markdown, [row for part in parts for row in part.rows])


def _pictures(section: Section) -> list[Picture]:
    return [block for block in section.blocks if isinstance(block, Picture)]


def _sections(parts: Sequence[_Part], costs: list[Cost], root: Location) -> list[Section]:
    sections: list[Section] = []
    for part in parts:
        of_preset = f", preset {part.of}" if len(parts) > 1 else ""
        sections += _main_sections(part, root, of_preset)
        sections += _study_sections(part, of_preset)
    efficiency = efficiency_blocks(costs, {str(part.of): part.rows for part in parts})
    missing = _missing(parts, costs)
    sections += [Section("Efficiency", tuple(efficiency))] if efficiency else []
    sections += [Section("Not in this store", missing)] if missing else []
    return [*sections, _provenance(parts)]


def _main_sections(part: _Part, root: Location, of_preset: str) -> list[Section]:
    if not part.main:
        return []
    done = finished(part.main)
    tables = [leaderboard_table(part.rows, with_published=True), comparison_table(part.rows)]
    if done:
        tables.insert(1, protocol_table(done))
    sections = [Section(f"Main results{of_preset}", tuple(tables))]
    for name, own in grouped(part.main, lambda outcome: outcome.benchmark).items():
        blocks = benchmark_blocks(own, [row for row in part.rows if row.benchmark == name], root)
        by_target = target_table(finished(own))
        blocks += [by_target] if by_target else []
        title = next((made.title for known, made in BENCHMARKS.items() if known == name), name)
        sections.append(Section(f"{title}{of_preset}", tuple(blocks)))
    process = solving_blocks(done, root)
    if process:
        sections.append(Section(f"The latent solving process{of_preset}", tuple(process)))
    return sections


def _study_sections(part: _Part, of_preset: str) -> list[Section]:
    return [
        Section(
            f"{OWN_SETTINGS if name == ALONE else study_of(name).title}{of_preset}",
            tuple(study_blocks(name, _in_order(name, part))),
        )
        for name in sorted(part.studies, key=_place)
    ]


def _in_order(name: str, part: _Part) -> list[Outcome]:
    """Return outcomes as their study lists them; what it does not know comes last."""
    if name not in STUDIES:
        return part.studies[name]
    listed = [cell.setting for cell in study_cells(name, part.of.preset, [0])]
    place = {setting: number for number, setting in reversed(list(enumerate(listed)))}
    return sorted(part.studies[name], key=lambda o: place.get(o.setting, len(listed)))


def _missing(parts: Sequence[_Part], costs: list[Cost]) -> tuple[Block, ...]:
    """Return what the paper has and the store has not, with the commands that would fill it."""
    preset = parts[0].of.preset if parts else "quick"
    lines = []
    if not any(part.main for part in parts):
        lines.append(f"Main results: `lsm benchmark --preset {preset}`")
    present = {name for part in parts for name in part.studies}
    lines += [
        f"{study.title}: `lsm study {name} --preset {preset}`"
        for name, study in STUDIES.items()
        if study.is_published and name not in present
    ]
    if not costs:
        lines.append("Cost of models: `lsm study efficiency`")
    return tuple(lines)


def _provenance(parts: Sequence[_Part]) -> Section:
    blocks = []
    for part in parts:
        for name, some in (("the main results", part.main), *part.studies.items()):
            if some:
                summary = f"Runs of {name}, preset {part.of} ({len(some)})"
                blocks.append(Folded(summary, provenance_table(some)))
    return Section("How these numbers came to be", tuple(blocks))


def write_results_page(root: Location, page: Path, note: str = "") -> list[Path]:
    """Write the page that is kept with the sources, its pictures and data; return the files.

    Every figure is there with what it rests on. `note` is what else a reader should know of these
    runs.
    """
    results = [result for result in read_outcomes(root).results if result.model != SOLVER]
    if not results:
        raise BadInput("there are no results to report; run `lsm benchmark` first")
    assets = page.parent / ASSETS
    assets.mkdir(parents=True, exist_ok=True)
    sections, pictures = [], []
    for name, section in _sections_of(results):
        for picture in _pictures(section):
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


def _sections_of(results: Sequence[Result]) -> Iterator[tuple[str, Section]]:
    """Yield names and sections: studies by preset and kind of data, then runs made alone."""
    studies = grouped(
        (result for result in results if result.study not in MADE_ALONE),
        lambda result: (result.study, result.preset),
    )
    for study, preset in sorted(studies, key=lambda key: (_place(key[0]), key[1])):
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


def _place(study: str) -> tuple[int, str]:
    """Return where a study stands: the main table first, then by the table of studies, by name."""
    return [BENCHMARK, *STUDIES, study].index(study), study


def _section(title: str, text: str, results: Sequence[Result]) -> Section:
    rows = compare(results)
    is_one = len({row.benchmark for row in rows}) == 1
    blocks: list[Block] = [text]
    blocks += [] if is_one else [leaderboard_table(rows)]
    blocks.append(comparison_table(rows))
    drawn = grouped((result for result in results if result.history), row_name)
    curves = {name: [result.history for result in own] for name, own in drawn.items()}
    if is_one and 0 < len(curves) <= MOST_LINES:
        caption = "Error on validation samples against the epoch"
        if any(len(seeds) > 1 for seeds in curves.values()):
            caption += "; of several seeds the mean, and a band from the lowest to the highest"
        blocks.append(Picture(training_curves(curves), caption))
    blocks.append(Folded("What each run rests on", provenance_table(results)))
    return Section(title, tuple(blocks))


def write_data_report(root: Location, preset: PresetName) -> Location:
    """Write a page with a figure for each complete dataset of a preset, and return its place."""
    pictures = []
    for name, protocol in PROTOCOLS.items():
        plan = protocol.plans[preset]
        try:
            dataset = open_dataset(location_of(plan, root))
        except (NotADataset, DatasetIncomplete):
            continue
        samples = dataset.part("train", [v.name for v in plan.benchmark.variables])
        shown = [plan.benchmark.panels(samples[index]) for index in range(N_SAMPLES)]
        space = " × ".join(str(size) for size in plan.benchmark.shape.space)
        sizes = ", ".join(f"{size} {split}" for split, size in plan.split_sizes.items())
        caption = (
            f"{plan.benchmark.title} ({name}): three training samples, inputs above, targets "
            f"below, on their {space} points. Samples: {sizes}. Data {dataset.digest[:16]}."
        )
        pictures.append(Picture(panel_figure(shown, length_unit(plan.benchmark)), caption))
    if not pictures:
        raise BadInput(f"no dataset of preset {preset} is complete; run `lsm prepare` first")
    page = root / "reports" / f"data-{preset}" / "index.html"
    section = Section("Samples", tuple(pictures))
    page.write_bytes(html_page(f"Data of preset {preset}", "", [section]).encode())
    return page
