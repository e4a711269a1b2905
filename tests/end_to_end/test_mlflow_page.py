"""MLflow's comparison page of a finished benchmark, in a real browser, without a click."""

import json
import re
from pathlib import Path

import pytest

from flows import commands
from flows.settings import Settings
from flows.steps.cells import cell
from storage.location import Location
from tests.end_to_end.browser import open_browser
from tests.end_to_end.test_report_page import trained
from tests.storage.mlflow_server import running_server

CHARTS = """[...document.querySelectorAll('.js-plotly-plot')].map(
    plot => plot.data.map(trace => [trace.name, [...trace.y].map(Number)]))"""
LEAF = """[...document.querySelectorAll('*')].find(
    e => e.children.length === 0 && e.textContent.trim() === '{}')"""
PATIENCE = 240.0


@pytest.mark.slow
def test_the_address_that_a_benchmark_prints_shows_the_error_of_every_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Location.parse(str(tmp_path / "store"))
    with open_browser(tmp_path) as tab, running_server(tmp_path) as uri:
        alone = cell("smoke", "burgers", "unet", 0)
        trained(root, "train", "", alone, uri)
        results = [
            trained(root, "benchmark-smoke", "", cell("smoke", "burgers", model, 0), uri)
            for model in ("lsm", "fno")
        ]
        expected = {f"burgers {r['model']} seed 0": r["test"]["rel_l2"] for r in results}
        monkeypatch.setenv("LSM_STORE", str(root))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        commands._show_where(Settings.from_environment(), "a report", "benchmark-smoke")
        found = re.search(r"^MLflow: +(http\S+)$", capsys.readouterr().out, re.MULTILINE)
        assert found

        tab.look_as(1400, 1000, "light")
        tab.open(found[1])
        # A section, and a chart in it, is drawn when it comes into view.
        for place in ("test", "test/rel_l2"):
            found_at = LEAF.format(place)
            tab.wait_for(f"!!{found_at} && ({found_at}.scrollIntoView() || true)", PATIENCE)
        shown = tab.wait_for(
            f"(charts => charts.find(c => {json.dumps(list(expected.values()))}.every("
            "e => c.some(([, ys]) => ys.some(y => Math.abs(y - e) < 1e-6)))))"
            f"({CHARTS})",
            PATIENCE,
        )
        tab.save_picture(tmp_path / "comparison.png")
        assert {name: values[-1] for name, values in shown} == pytest.approx(expected)
        text = tab.evaluate("document.body.innerText")
        assert "burgers unet seed 0" not in text
