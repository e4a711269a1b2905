"""MLflow's comparison page of a finished benchmark, in a real browser, without a click."""

import json
import os
import re
from argparse import Namespace
from pathlib import Path

import pytest
from mlflow.entities import Metric

from flows.cli.results import show_where
from flows.settings import Settings
from flows.steps.reports.attachments import Attachments
from flows.steps.training.cells import cell
from storage.location import Location
from storage.tracking.charts_page import suite_tag
from storage.tracking.echo import send
from storage.tracking.store import open_tracking
from tests.end_to_end.browser import Tab, open_browser
from tests.end_to_end.test_report_page import trained
from tests.storage.tracking.mlflow_server import running_server
from tests.storage.tracking.records import BEGAN, finished

BARS = """[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data[0])
    .filter(trace => trace && trace.type === 'bar' && trace.x)
    .map(trace => [...trace.x].map(Number).sort((a, b) => a - b))"""
LEAF = """[...document.querySelectorAll('*')].find(
    e => e.children.length === 0 && e.textContent.trim() === '{}')"""
PATIENCE = 120.0
SUITE = "benchmark-smoke"
PARTS = ("train", "validation")


def log_made_up(root: Location, uri: str, benchmark: str, model: str, error: float) -> str:
    """Record a run of the suite that was not trained, and return its name."""
    name = f"{benchmark} {model} seed 0"
    tags = {"suite": SUITE, suite_tag(SUITE): "yes", "benchmark": benchmark, "model": model}
    curves = [Metric(f"{part}/rel_l2", 1 / e, BEGAN + e, e) for part in PARTS for e in (1, 2, 3)]
    bar = Metric(f"leaderboard/{benchmark}", error, BEGAN + 4, 0)
    record = finished(f"made-up-{benchmark}-{model}", name=name, tags=tags, points=[*curves, bar])
    send(open_tracking(uri, root), record)
    return name


@pytest.mark.slow
def test_the_address_that_a_benchmark_prints_shows_every_model_on_a_chart_of_its_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Location.parse(str(tmp_path / "store"))
    with open_browser(tmp_path) as tab, running_server(tmp_path) as uri:
        trained(root, "train", "", cell("smoke", "burgers", "unet", 0), uri)
        lsm = trained(root, "benchmark", "", cell("smoke", "burgers", "lsm", 0), uri)
        fno = trained(root, "another", "", cell("smoke", "burgers", "fno", 0), uri)
        Attachments(root, open_tracking(uri, root), [SUITE]).add(fno)
        burgers = {f"burgers {r.model} seed 0": r.error for r in (lsm, fno)}
        darcy = {}
        for number in range(1, 8):
            error, model = number / 64, f"made-up-{number}"
            burgers[log_made_up(root, uri, "burgers", model, error)] = error
            darcy[log_made_up(root, uri, "darcy", model, 2 * error)] = 2 * error
        monkeypatch.setenv("LSM_STORE", str(root))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        show_where(Namespace(json=False), Settings.from_environment(), "a report", SUITE)
        found = re.search(r"^MLflow: +(http\S+)$", capsys.readouterr().out, re.MULTILINE)
        assert found

        tab.look_as(1400, 1000, "light")
        tab.open(found[1])
        try:
            for benchmark, expected in (("burgers", burgers), ("darcy", darcy)):
                wait_for_bars(tab, f"leaderboard/{benchmark}", sorted(expected.values()))
        finally:
            tab.save_picture(Path(os.environ.get("LSM_PICTURE", tmp_path / "comparison.png")))
        text = tab.evaluate("document.body.innerText")
        assert f"{len(burgers) + len(darcy)} matching runs" in text
        assert [name for name in (*burgers, *darcy) if name not in text] == []
        assert "burgers unet seed 0" not in text


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
