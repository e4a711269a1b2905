"""Pictures of MLflow's pages about a store, in a real browser: as wide as a desk's and a laptop's.

    LSM_STORE=STORE python -m tests.end_to_end.pictures FOLDER ADDRESS SUITE [PROBLEM]

`lsm stack up`, or the command that `lsm benchmark` prints, has started MLflow at ADDRESS. SUITE is
what is compared, like `benchmark-quick`, PROBLEM whose curves and models are shown, the first one
otherwise. What of the pages is text is written beside each picture. A page of a verdict is taken if
the store has one, the last of the problem's; with PREFECT_API_URL Prefect's page of it, too.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.settings import current_settings
from flows.steps.reports.comparison_runs import comparison_page, curves_page
from storage.tracking.registry import registered_name
from storage.tracking.report_page import EXPERIMENT, PAGE, report_address
from storage.tracking.store import Tracking, open_tracking
from tests.end_to_end.browser import Tab, open_browser

SCREENS = {1900: 1000, 1280: 800}
MODELS = "workflowType=machine_learning"
PATIENCE = 60.0


def pages(address: str, suite: str, problem: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each picture, its page, and a word that is on it once it is there."""
    settings = current_settings()
    tracking = open_tracking(settings.tracking_uri, settings.root)
    name = registered_name(problem)
    experiment = tracking.at(name).experiment_id
    yield "comparison", f"{address}/{comparison_page(settings.root, tracking, suite)}", problem
    yield "curves", f"{address}/{curves_page(tracking, problem, suite)}", "validation/rel_l2"
    yield "models", f"{address}/#/experiments/{experiment}/models?{MODELS}", f"{problem}-"
    yield "registry", f"{address}/#/models?{MODELS}", name
    yield "registered", f"{address}/#/models/{name}?{MODELS}", "champion"
    folder = settings.root / "reports"
    found = [each for each in folder.names() if each.startswith(f"retrain-{problem}-")]
    if not found:
        return
    last = max(found, key=lambda each: int(each.rpartition("-")[2]))
    yield "verdict-file", f"file://{(folder / last / PAGE).local_path}", "champion"
    reports = tracking.at(EXPERIMENT)
    yield "verdict", f"{address}/{report_address(reports, _run_of(last, reports))}", PAGE
    if "PREFECT_API_URL" in os.environ:
        prefect = os.environ["PREFECT_API_URL"].removesuffix("/api")
        yield "verdict-prefect", f"{prefect}/artifacts/key/retrain-{problem}", "retrain"


def _run_of(report: str, reports: Tracking) -> str:
    query = f"tags.report = '{report}'"
    (run,) = reports.client.search_runs([reports.experiment_id], query)
    return str(run.info.run_id)


def take(tab: Tab, page: str, word: str, file: Path) -> None:
    """Open a page, wait until it has a word and no longer changes, and keep what is seen."""
    tab.open("about:blank#")
    tab.open(page)
    tab.wait_for(f"document.body.innerText.includes({word!r})", PATIENCE)
    before, deadline = "", time.monotonic() + PATIENCE
    while (now := str(tab.evaluate("document.body.innerHTML.length"))) != before:
        assert time.monotonic() < deadline
        before = now
        time.sleep(4)
    tab.save_picture(file)
    file.with_suffix(".txt").write_text(str(tab.evaluate("document.body.innerText")))


def main(folder: Path, address: str, suite: str, problem: str) -> None:
    """Take all pictures, and print their names."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as profile, open_browser(Path(profile)) as tab:
        for width, height in SCREENS.items():
            tab.look_as(width, height, "light")
            for name, page, word in pages(address, suite, problem):
                file = folder / f"{name}-{width}.png"
                try:
                    take(tab, page, word, file)
                    print(file, page, flush=True)
                except TimeoutError as error:
                    tab.save_picture(file)
                    print(f"{file} {page}: {error}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] if sys.argv[4:] else "burgers")
