"""The page of `lsm explore` in a real browser: a sample changed, predicted and solved."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.engine.own_server import free_port
from flows.stack.services import stop_process, wait_until_healthy
from tests.end_to_end.browser import open_browser

SCREENS = ((1280, 900, "light"), (1280, 900, "dark"), (390, 844, "light"))
UNLABELLED = """[...document.querySelectorAll("input, select")]
  .filter(each => !each.labels.length).map(each => each.id).join()"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "flows.cli", "explore", "--port", str(port)]
    log = tmp_path / "explore.log"
    with log.open("wb") as output:
        process = psutil.Popen(command, stdout=output, stderr=output)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/problems", process, log)
        yield f"http://127.0.0.1:{port}/"
    finally:
        stop_process(process)


@pytest.mark.slow
def test_a_sample_is_changed_predicted_and_solved_on_every_screen(
    address: str, tmp_path: Path
) -> None:
    with open_browser(tmp_path) as tab:
        for width, height, scheme in SCREENS:
            tab.look_as(width, height, scheme)
            tab.open(address)
            tab.wait_for("document.querySelectorAll('figure canvas').length")
            first = tab.evaluate("document.getElementById('verdict').textContent")
            assert "Expected error at most" in first
            tab.evaluate("document.getElementById('solve').click()")
            tab.wait_for("document.getElementById('verdict').textContent.startsWith('Error')", 300)
            assert tab.evaluate("document.querySelectorAll('figure canvas').length") >= 3
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert tab.evaluate(UNLABELLED) == ""
            tab.save_picture(tmp_path / f"{width}-{scheme}.png")
        tab.evaluate("document.getElementById('seed').value = -5")
        tab.evaluate("document.getElementById('seed').dispatchEvent(new Event('input'))")
        tab.wait_for("document.getElementById('verdict').textContent.startsWith('seed must be')")
