"""What lies in MLflow after a flow: files with every run, the report as a page; once, or later."""

import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import mlflow
import pytest

from flows.engine.own_server import free_port
from tests.end_to_end.browser import open_browser
from tests.end_to_end.local_stack import ask, environment, local_stack, run
from tests.storage.tracking.test_outage import MlflowServer

FILES = {"result.json", "sample.svg", "images"}
STUDY = ["flows.cli", "study", "burgers-forms", "--preset", "smoke", "--rows", "released form"]
PATIENCE = 120.0
SHOWN = """(() => { const frame = document.querySelector('iframe[src^="blob:"]');
    if (frame && !window.asked) { window.asked = true;
        fetch(frame.src).then(answer => answer.text()).then(text => { window.shown = text; }); }
    return window.shown; })()"""
PICTURE = """[...document.querySelectorAll('img[src^="blob:"]')].some(each =>
    each.complete && each.naturalWidth > 100 && each.getBoundingClientRect().width > 100)"""


def recorded(uri: str, experiment: str) -> list[Any]:
    """Return the runs of an experiment."""
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))


def names(uri: str, run_id: str) -> set[str]:
    return {file.path for file in mlflow.MlflowClient(uri).list_artifacts(run_id)}


def changes(folder: Path) -> dict[str, int]:
    """Return when each file below a folder was written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def links_to_report(store: Path) -> list[str]:
    """Return the links that Prefect keeps, the first one first, each with what is said of it."""
    with closing(sqlite3.connect(store / "prefect" / "prefect.db")) as database:
        asked = "SELECT data, description FROM artifact WHERE key = 'report' ORDER BY created"
        found = [" ".join(map(str, row)) for row in database.execute(asked)]
    assert not [link for link in found if "secret" in link]
    return [link.replace('"', "") for link in found]


@pytest.mark.slow
def test_a_study_without_its_tracking_server_ends_well_and_the_files_come_later(
    tmp_path: Path,
) -> None:
    server = MlflowServer(tmp_path, free_port())
    settings = environment(
        tmp_path / "store",
        PREFECT_API_URL="http://127.0.0.1:9/api",
        MLFLOW_TRACKING_URI=server.uri.replace("://", "://me:secret@"),
    )
    file = tmp_path / "store" / "reports" / "benchmark-smoke" / "index.html"
    away = run([*STUDY, "--json"], settings)
    assert away.returncode == 0, away.stderr
    (result,) = json.loads(away.stdout)
    assert "1 finished runs lack files in MLflow" in away.stderr
    assert "the report is not in MLflow" in away.stderr
    (link,) = links_to_report(tmp_path / "store")
    assert link.startswith(f"[Report benchmark-smoke]({file.as_uri()})")
    assert link.count(str(file)) == 2  # the link, and where it is said
    server.start()
    try:
        server.wait_until_it_answers()
        sync = run(["flows.cli", "runs", "sync"], settings)
        assert sync.returncode == 0, sync.stderr
        (found,) = recorded(server.uri, f"pde-{result['benchmark']}")
        assert found.data.tags["identity"] == result["identity"]
        assert names(server.uri, found.info.run_id) == FILES
        before = changes(tmp_path / "server-artifacts")
        again = run(STUDY, settings)
        assert again.returncode == 0, again.stderr
        after = changes(tmp_path / "server-artifacts")
        assert {name: after[name] for name in before} == before
        (report,) = recorded(server.uri, "reports")
        assert report.info.run_name == "report-benchmark-smoke"
        assert names(server.uri, report.info.run_id) == {"index.html", "report.md"}
        assert len(after) == len(before) + 2
        (still,) = recorded(server.uri, f"pde-{result['benchmark']}")
        assert still.info.end_time == found.info.end_time
        _, link = links_to_report(tmp_path / "store")
        assert link.startswith(f"[Report benchmark-smoke]({server.uri}/#/experiments/")
        assert f"runs/{report.info.run_id}/artifacts/index.html" in link
        assert str(file) in link
        assert "secret" not in away.stderr + again.stderr
    finally:
        server.stop()


@pytest.mark.slow
def test_a_browser_follows_the_link_to_the_report_and_shows_the_picture_of_a_run(
    tmp_path: Path,
) -> None:
    pictures = Path(os.environ.get("LSM_PICTURE", tmp_path))
    with open_browser(tmp_path) as tab, local_stack(tmp_path / "store") as stack:
        command = ["prefect", "deployment", "run", "lsm/full-benchmark", "--watch"]
        smoke = ["--watch-timeout", "300", "--param", "preset=smoke"]
        narrow = ["--param", 'benchmarks=["darcy"]', "--param", 'models=["lsm", "fno"]']
        for _ in range(2):
            done = run([*command, *smoke, *narrow], stack)
            assert done.returncode == 0, done.stdout + done.stderr
        server = f"http://127.0.0.1:{stack['LSM_MLFLOW_PORT']}"
        links = ask(stack, "artifacts/filter", {"artifacts": {"key": {"any_": ["report"]}}})
        file = tmp_path / "store" / "reports" / "benchmark-smoke" / "index.html"
        addresses = set()
        for link in links:
            found = re.fullmatch(r"\[Report benchmark-smoke\]\((\S+)\)", link["data"])
            assert found
            addresses.add(found[1])
            assert str(file) in link["description"]
        assert len(links) == 2
        (address,) = addresses  # the second report is in the place of the first
        assert address.startswith(f"{server}/#/")

        tab.look_as(1400, 1000, "light")
        tab.open(address)
        try:
            assert tab.wait_for(SHOWN, PATIENCE) == file.read_text()
        finally:
            tab.save_picture(pictures / "report.png")

        runs = recorded(server, "pde-burgers")
        assert len(runs) == 2
        for each in runs:
            assert names(server, each.info.run_id) == FILES
        number, run_id = runs[0].info.experiment_id, runs[0].info.run_id
        tab.call("Page.navigate", url="about:blank")
        tab.open(f"{server}/#/experiments/{number}/runs/{run_id}/artifacts/sample.svg")
        try:
            tab.wait_for(PICTURE, PATIENCE)
        finally:
            tab.save_picture(pictures / "sample.png")
