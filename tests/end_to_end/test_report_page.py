"""The report in a real browser: on a desk and on a phone, in the light and in the dark."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.steps.reports.page import write_report
from flows.steps.reports.results import keep_cost, keep_outcomes
from flows.steps.training import run as training
from flows.steps.training.cells import bind, cell
from flows.steps.training.workplace import Slot, Workplace
from lsm_core.experiments.experiment import BoundExperiment
from lsm_core.result import Result
from lsm_core.studies.catalogue import study_cells
from lsm_core.studies.cells import Cell
from storage.location import Location
from tests.end_to_end.browser import open_browser
from tests.flows.steps.data.generation import generated
from tests.lsm_core.reporting.test_efficiency import cost

SCREENS = [(1280, 800), (390, 844)]

FIGURES = """[...document.querySelectorAll('figure:not(.table)')].map(figure => ({
    caption: figure.querySelector('figcaption')?.textContent ?? '',
    axes: figure.querySelectorAll('svg [id*="-axes_"]').length,
    names: [...figure.querySelectorAll('svg [id*="axis-name"]')].map(e => e.textContent.trim()),
    inside: figure.getBoundingClientRect().right <= innerWidth,
    letters: Math.min(...[...figure.querySelectorAll('svg text')].map(e =>
        parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getScreenCTM().a)),
}))"""

CONTRAST = """(() => {
    const light = text => { const [r, g, b] = text.match(/[0-9.]+/g).map(Number).map(
        v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ground = light(getComputedStyle(document.querySelector('.ground')).backgroundColor);
    return Math.min(...[...document.querySelectorAll('svg text')].map(e => {
        const ink = light(getComputedStyle(e).fill);
        return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05); }));
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report of real runs, with a section of every kind."""
    folder = tmp_path_factory.mktemp("report")
    root = Location.parse(str(folder))
    bench = [cell("smoke", name, model, 0) for name in ("burgers", "darcy") for model in MODELS]
    bench.append(cell("smoke", "navier_stokes", "fno", 0))
    train(root, "benchmark", [(each, "") for each in bench])
    for name, wanted in STUDIES.items():
        some = [
            each for each in study_cells(name, "smoke", [0]) if re.fullmatch(wanted, kind(each))
        ]
        assert some
        train(root, name, [(bind(each.experiment), each.setting) for each in some])
    train(root, "stability", [(cell("smoke", "burgers", "lsm", seed), "") for seed in (0, 1)])
    for size in (64, 128, 256):
        keep_cost(root, cost(size))
    return folder / write_report(root).page.url.removeprefix(f"{root.url}/")


MODELS = ("lsm", "fno")
STUDIES: dict[Any, str] = {
    "ablations": "darcy: (without patches|fourier solver|lsm)",
    "hyperparameters": "elasticity_g: (2 tokens|4 tokens|8 basis operators|3 scales)",
    "resolutions-burgers": "burgers: (lsm|fno) at .*",
    "transfer": "airfoil: lsm .* 20% of the data",
    "burgers-forms": "burgers: (lsm|released form|)",
}
"""Some cells of every study, by benchmark and setting."""


def kind(each: Cell) -> str:
    return f"{each.experiment.data.benchmark.name}: {each.setting}"


def train(root: Location, study: str, cells: Sequence[tuple[BoundExperiment, str]]) -> None:
    for each, setting in cells:
        if isinstance(each.source, BoundExperiment):
            trained(root, study, "", each.source)
        result = trained(root, study, setting, each)
        keep_outcomes(root, [replace(result, study=study, setting=setting)])


def trained(
    root: Location, study: str, setting: str, experiment: BoundExperiment, tracking_uri: str = ""
) -> Result:
    """Return the result of a run that is trained here, in this process."""
    place = Workplace(
        root=root,
        dataset=generated(experiment.data, root).location,
        tracking_uri=tracking_uri or f"sqlite:///{root.local_path}/mlflow.db",
        study=study,
        setting=setting,
        n_threads=1,
        slot=Slot("cpu"),
    )
    return training.train(experiment, place, lambda message: None)


@pytest.mark.slow
def test_the_report_has_every_section(page: Path) -> None:
    text = page.read_text()
    titles = re.findall("<h2>(.*?)</h2>", text)
    assert titles == [
        "Main results",
        "Burgers",
        "Darcy",
        "Navier-Stokes",
        "Pipe: steady incompressible flow",
        "The latent solving process",
        "Ablations of LSM",
        "Hyperparameters of LSM",
        "Resolutions of Burgers",
        "Transfer from pipe to airfoil",
        "Stability over seeds",
        "LSM on Burgers in two forms",
        "Efficiency",
        "Not in this store",
        "How these numbers came to be",
    ]
    assert "lsm study resolutions-darcy --preset smoke" in text
    assert re.search("At 20% of the data, fine-tuning lsm (beats|does not beat) training", text)
    written = (page.parent / "report.md").read_text()
    for place in re.findall(r"\]\((figures/\d+\.svg)\)", written):
        assert (page.parent / place).read_text().startswith("<svg")
    assert "| lsm |" in written


@pytest.mark.slow
def test_nothing_is_wider_than_the_screen_and_every_figure_says_what_it_shows(
    page: Path, tmp_path: Path
) -> None:
    with open_browser(tmp_path) as tab:
        grounds = set()
        for width, height in SCREENS:
            for scheme in ("light", "dark"):
                tab.look_as(width, height, scheme)
                tab.open(page.as_uri())
                assert tab.evaluate("innerWidth") == width
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
                figures = tab.evaluate(FIGURES)
                assert len(figures) > 15
                for figure in figures:
                    assert len(figure["caption"]) > 20
                    assert figure["inside"]
                    if figure["axes"]:
                        # Colour bars are axes without names of their own.
                        assert len([name for name in figure["names"] if name]) >= 2
                        assert figure["letters"] > 6
                assert tab.evaluate(CONTRAST) > 7
                grounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
                tab.save_picture(tmp_path / f"{width}-{scheme}.png")
        assert len(grounds) == 2
        fetched = "performance.getEntriesByType('resource').map(entry => entry.name)"
        assert tab.evaluate(fetched) == []
