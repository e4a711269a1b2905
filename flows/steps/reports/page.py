"""Write the report of what a store holds: the paper's tables and figures, published and ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from flows.errors import BadInput
from flows.steps.reports.pictures import benchmark_blocks, solving_blocks
from flows.steps.reports.results import (
    ALONE,
    BENCHMARK,
    Comparison,
    read_outcomes,
    stored_costs,
)
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.reporting.comparison import Row, compare, finished, grouped
from lsm_core.reporting.document import (
    Block,
    Folded,
    Picture,
    Section,
    html_page,
    markdown_page,
)
from lsm_core.reporting.efficiency import Cost, efficiency_blocks
from lsm_core.reporting.protocol import protocol_table
from lsm_core.reporting.tables import comparison_table, leaderboard_table, provenance_table
from lsm_core.result import Outcome, suite_name
from lsm_core.studies.catalogue import STUDIES, study_blocks, study_cells, study_of
from storage.location import Location

ABOUT_THE_METRIC = (
    "Error: mean relative L2 norm over the test samples, at the last epoch. Paper: the figure "
    "published for the paper's own data, sizes and 500 epochs; other presets are smaller, so the "
    "two are not a like-for-like comparison. Axes without a unit are dimensionless."
)
OWN_SETTINGS = "Trained alone, with settings of their own"


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

    Results on other kinds of data have tables of their own. BadInput if there is nothing to report.
    """
    outcomes, costs = read_outcomes(root), stored_costs(root)
    found = outcomes.comparisons()
    parts = []
    for one in found:
        if preset in (None, one.preset) and (one.origin != "generated" or not official):
            main = outcomes.of_benchmark(one)
            parts.append(_Part(one, main, outcomes.of_studies(one), compare(main)))
    if not parts and not costs:
        there = f"; there are some of preset {', '.join(map(str, found))}" if found else ""
        raise BadInput(f"there are no results to report{there}; run `lsm benchmark` first")
    name = "all" if preset is None else suite_name(BENCHMARK, preset, official)
    sections = _sections(parts, costs, root)
    return _write(root / "reports" / name, _title(parts, preset), sections, parts)


def _title(parts: Sequence[_Part], preset: str | None) -> str:
    if preset is None:
        return "Report of all runs"
    return f"Report, preset {'; '.join(str(part.of) for part in parts)}"


def _write(
    folder: Location, title: str, sections: Sequence[Section], parts: Sequence[_Part]
) -> Report:
    """Write page, Markdown, pictures and data, and return where."""
    pictures = [b for section in sections for b in section.blocks if isinstance(b, Picture)]
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
        sections.append(Section(f"{_benchmark_title(name)}{of_preset}", tuple(blocks)))
    process = solving_blocks(done, root)
    if process:
        sections.append(Section(f"The latent solving process{of_preset}", tuple(process)))
    return sections


def _benchmark_title(name: str) -> str:
    return next((made.title for known, made in BENCHMARKS.items() if known == name), name)


def _study_sections(part: _Part, of_preset: str) -> list[Section]:
    known = [name for name in STUDIES if name in part.studies]
    return [
        Section(
            f"{OWN_SETTINGS if name == ALONE else study_of(name).title}{of_preset}",
            tuple(study_blocks(name, _in_order(name, part))),
        )
        for name in (*known, *sorted(part.studies.keys() - STUDIES.keys()))
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
