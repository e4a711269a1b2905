"""Write the report of what a store holds: the paper's tables and figures, published and ours."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from flows.errors import BadInput
from flows.steps.report_pictures import benchmark_blocks, solving_blocks
from flows.steps.stored_results import (
    ALONE,
    Comparison,
    benchmark_results,
    comparison_of,
    comparisons_of,
    stored_costs,
    study_results,
)
from lsm_core.benchmarks.catalogue import BENCHMARKS
from lsm_core.experiments.study import STUDIES, study_cells
from lsm_core.names import PresetName
from lsm_core.reporting.comparison import Row, compare
from lsm_core.reporting.document import (
    Block,
    Facts,
    Picture,
    Section,
    html_page,
    markdown_page,
)
from lsm_core.reporting.efficiency import efficiency_blocks
from lsm_core.reporting.main_results import main_blocks, scatter_pictures
from lsm_core.reporting.origin import origin_of
from lsm_core.reporting.study_sections import study_blocks
from storage.location import Location

ABOUT_THE_METRIC = (
    "Error: mean relative L2 norm over the test samples, at the last epoch. Paper: the figure "
    "published for the paper's own data, sizes and 500 epochs; other presets are smaller, so the "
    "two are not a like-for-like comparison. Axes without a unit are dimensionless."
)
TITLES = {
    "ablations": "Ablations of LSM",
    "hyperparameters": "Hyperparameters of LSM",
    "resolutions-darcy": "Resolutions of Darcy",
    "resolutions-burgers": "Resolutions of Burgers",
    "resolutions-navier-stokes": "Resolutions of Navier-Stokes",
    "transfer": "Transfer from pipe to airfoil",
    "stability": "Stability over seeds",
}
"""The paper's studies in the order of the page; others follow under their own names."""

Results = Sequence[dict[str, Any]]
Main = dict[Comparison, list[dict[str, Any]]]
"""Results of benchmarks, apart where they do not compare."""
Studies = dict[Comparison, dict[str, list[dict[str, Any]]]]


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


def write_report(results: Results, root: Location) -> Report:
    """Write the report of a benchmark of one preset, with all that the store has of that preset.

    These results come first; cells of the same benchmark that were not asked for this time follow.
    Results on other kinds of data have tables of their own.
    """
    if not results:
        raise BadInput("there are no results to report; run `lsm benchmark` first")
    suite = f"benchmark{comparison_of(results[0]).suffix}"
    main: Main = {}
    for kind in dict.fromkeys(map(comparison_of, results)):
        own = [result for result in results if comparison_of(result) == kind]
        asked = {_cell(result) for result in own}
        others = [
            result
            for result in benchmark_results(root, *kind)
            if result.get("suite") == suite and _cell(result) not in asked
        ]
        main[kind] = [*own, *others]
    return _written(root, suite, main)


def write_full_report(root: Location, preset: str | None = None) -> Report:
    """Write the report of all that a store holds, or of one preset; BadInput if it has nothing."""
    found = comparisons_of(root)
    names = [name for name in get_args(PresetName) if preset in (None, name)]
    kinds = [kind for name in names for kind in found if kind.preset == name]
    if not kinds and not stored_costs(root):
        there = f"; there are some of preset {', '.join(map(str, found))}" if found else ""
        raise BadInput(f"there are no results to report{there}; run `lsm benchmark` first")
    main = {kind: benchmark_results(root, *kind) for kind in sorted(kinds, key=_generated_first)}
    return _written(root, f"benchmark-{preset}" if preset else "all", main)


def _generated_first(kind: Comparison) -> bool:
    return kind.origin != "generated"


def _written(root: Location, name: str, main: Main) -> Report:
    """Write page, Markdown, pictures and data, and return where."""
    folder = root / "reports" / name
    title = "Report of all runs" if name == "all" else f"Report, preset {'; '.join(map(str, main))}"
    rows_of = {str(kind): compare(results) for kind, results in main.items()}
    rows = [row for some in rows_of.values() for row in some]
    studies = {kind: study_results(root, *kind) for kind in main}
    sections: list[Section] = []
    for kind, results in main.items():
        of_preset = f", preset {kind}" if len(main) > 1 else ""
        sections += _main_sections(results, root, of_preset)
        sections += _study_sections(studies[kind], kind.preset, of_preset)
    sections += _efficiency_section(rows_of, root)
    sections += _missing(main, studies, root)
    sections.append(_provenance(main, studies))
    page = html_page(title, ABOUT_THE_METRIC, sections)
    places = []
    for number, picture in enumerate(_pictures(sections), start=1):
        places.append(f"figures/{number}.svg")
        (folder / places[-1]).write_bytes(picture.svg.encode())
    written = markdown_page(title, ABOUT_THE_METRIC, sections, places)
    data = [result for results in main.values() for result in results]
    (folder / "results.json").write_bytes(json.dumps(data, indent=1).encode())
    (folder / "report.md").write_bytes(written.encode())
    (folder / "index.html").write_bytes(page.encode())
    markdown = markdown_page(title, ABOUT_THE_METRIC, [s for s in sections if s != sections[-1]])
    return Report(folder / "index.html", markdown, rows)


def _main_sections(results: Results, root: Location, of_preset: str) -> list[Section]:
    if not results:
        return []
    rows = compare(results)
    sections = [Section(f"Main results{of_preset}", tuple(main_blocks(results, rows)))]
    for benchmark in dict.fromkeys(result["benchmark"] for result in results):
        own = [result for result in results if result["benchmark"] == benchmark]
        blocks = benchmark_blocks(own, [row for row in rows if row.benchmark == benchmark], root)
        sections.append(Section(f"{BENCHMARKS[benchmark].title}{of_preset}", tuple(blocks)))
    process = solving_blocks(results, root)
    if process:
        sections.append(Section(f"The latent solving process{of_preset}", tuple(process)))
    return sections


def _study_sections(
    studies: dict[str, list[dict[str, Any]]], preset: str, of_preset: str
) -> list[Section]:
    names = [*(name for name in TITLES if name in studies), *sorted(studies.keys() - TITLES.keys())]
    return [
        Section(
            f"{_title(name)}{of_preset}",
            tuple(study_blocks(name, _in_order(name, preset, studies[name]))),
        )
        for name in names
    ]


def _title(study: str) -> str:
    if study == ALONE:
        return "Trained alone, with settings of their own"
    return TITLES.get(study, f"Study {study}")


def _in_order(name: str, preset: Any, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results as their study lists them; what it does not know comes last."""
    if name not in STUDIES:
        return results
    listed = [cell.setting for cell in study_cells(name, preset, [0])]
    place = {setting: number for number, setting in reversed(list(enumerate(listed)))}
    return sorted(results, key=lambda result: place.get(result.get("setting", ""), len(listed)))


def _efficiency_section(rows_of: Mapping[str, Sequence[Row]], root: Location) -> list[Section]:
    blocks = efficiency_blocks(stored_costs(root), rows_of)
    for preset, rows in rows_of.items():
        blocks += scatter_pictures(rows, preset)
    return [Section("Efficiency", tuple(blocks))] if blocks else []


def _missing(main: Main, studies: Studies, root: Location) -> list[Section]:
    """Return what the paper has and the store has not, with the commands that would fill it."""
    preset = next(iter(main), Comparison("quick")).preset
    lines: list[Block] = []
    if not any(main.values()):
        lines.append(f"Main results: `lsm benchmark --preset {preset}`")
    present = {name for some in studies.values() for name in some}
    lines += [
        f"{title}: `lsm study {name} --preset {preset}`"
        for name, title in TITLES.items()
        if name not in present
    ]
    if not stored_costs(root):
        lines.append("Cost of models: `lsm study efficiency`")
    return [Section("Not in this store", tuple(lines))] if lines else []


def _provenance(main: Main, studies: Studies) -> Section:
    blocks: list[Block] = []
    for kind, results in main.items():
        if results:
            summary = f"Runs of the main results, preset {kind} ({len(results)})"
            blocks.append(Facts(summary, tuple(_fact(result) for result in results)))
        for name, some in studies[kind].items():
            summary = f"Runs of {name}, preset {kind} ({len(some)})"
            blocks.append(Facts(summary, tuple(_fact(result) for result in some)))
    return Section("How these numbers came to be", tuple(blocks))


def _cell(result: dict[str, Any]) -> tuple[str, str, int]:
    return result["benchmark"], result["model"], result["seed"]


def _fact(result: dict[str, Any]) -> tuple[str, str]:
    """Return what a reader needs to make a run again."""
    setting = f", {result['setting']}" if result.get("setting") else ""
    name = f"{result['benchmark']} {result['model']}{setting}, seed {result['seed']}"
    if "error" in result:
        return name, f"failed: {result['error']}"
    environment = result["environment"]
    return (
        name,
        f"{result['n_train']} training samples, {result['epochs']} epochs, "
        f"finished {result['finished']}, on {environment['device']} "
        f"({environment['machine']}, torch {environment['torch']}); "
        f"predicting the mean gives {result['mean_prediction']:.4f}; "
        f"run {result['identity']}, protocol {result['protocol']}, "
        f"{origin_of(result)} data {result['dataset']['digest'][:16]}, code {result['code']}",
    )


def _pictures(sections: Sequence[Section]) -> list[Picture]:
    return [block for section in sections for block in section.blocks if isinstance(block, Picture)]
