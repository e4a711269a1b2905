"""MLflow's comparison page of a finished benchmark, in a real browser, without a click."""

import json
import os
import re
from argparse import Namespace
from pathlib import Path

import pytest

from flows.cli.results import show_where
from flows.settings import Settings
from storage.location import Location
from tests.end_to_end.browser import Tab, open_browser
from tests.flows.steps.models.test_best_model import ERRORS, SMALL, finished_run
from tests.storage.tracking.mlflow_server import running_server

BARS = """[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data[0])
    .filter(trace => trace && trace.type === 'bar' && trace.x)
    .map(trace => [...trace.x].map(Number).sort((a, b) => a - b))"""
COLOURS = """[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data[0])
    .filter(trace => trace && trace.type === 'bar' && trace.x)
    .map(trace => JSON.stringify(trace.marker.color))"""
LEAF = """[...document.querySelectorAll('*')].find(
    e => e.children.length === 0 && e.textContent.trim() === '{}')"""
PATIENCE = 120.0
SUITE = "benchmark-smoke"


@pytest.mark.slow
def test_the_address_that_a_benchmark_prints_shows_every_model_on_a_chart_of_its_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Location.parse(str(tmp_path / "store"))
    with open_browser(tmp_path) as tab, running_server(tmp_path) as uri:
        errors = {}
        for place, benchmark in enumerate(SMALL):
            errors[benchmark] = [(place + 1) * error for error in ERRORS.values()]
            for model, error in zip(ERRORS, errors[benchmark], strict=True):
                finished_run(root, benchmark, model, error)
        monkeypatch.setenv("LSM_STORE", str(root))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        show_where(Namespace(json=False), Settings.from_environment(), "a report", SUITE)
        found = re.search(r"^MLflow: +(http\S+)$", capsys.readouterr().out, re.MULTILINE)
        assert found

        tab.look_as(1400, 1000, "light")
        tab.open(found[1])
        try:
            for benchmark, some in errors.items():
                percents = sorted(100 * error for error in some)
                wait_for_bars(tab, f"error in percent/{benchmark}", percents)
        finally:
            tab.save_picture(Path(os.environ.get("LSM_PICTURE", tmp_path / "comparison.png")))
        text = tab.evaluate("document.body.innerText")
        assert [model for model in ERRORS if model not in text] == []
        assert "the best: lsm on burgers 3.59 %, darcy 7.18 %" in text
        assert "Judges" not in text  # a page for language models
        # Each model has its colour on all charts, and no other model has it.
        colours = set(tab.evaluate(COLOURS))
        assert len(colours) == 1, colours
        assert len(set(json.loads(colours.pop()))) == len(ERRORS)


def wait_for_bars(tab: Tab, title: str, lengths: list[float]) -> None:
    """Return once the page has a title, and a chart with bars of exactly these lengths."""
    # A section, and a chart in it, is drawn when it comes into view.
    found_at = LEAF.format(title)
    tab.wait_for(f"!!{found_at} && ({found_at}.scrollIntoView(), true)", PATIENCE)
    tab.wait_for(
        f"(wanted => ({BARS}).some(found => found.length === wanted.length && "
        f"found.every((x, i) => Math.abs(x - wanted[i]) < 1e-6)))({json.dumps(lengths)})",
        PATIENCE,
    )
