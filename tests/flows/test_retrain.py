"""What a retraining tells of its data reaches whoever is told the verdict: on a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.steps.models.registration import register_run
from storage.location import Location
from storage.tracking.model_state import Change
from storage.tracking.registry import ModelRegistry
from tests.flows.steps.trained_runs import cell, write_run

REPOSITORY = Path(__file__).parents[2]
NAME = "pde-burgers"
SCRIPT = """
import json, os, sys, time
from flows.engine.own_server import prefect_api
from flows.settings import current_settings, Settings

with prefect_api(Settings.from_environment()):
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow
    from prefect.states import Pending
    from flows.retrain import retrain
    from flows.steps.models.retraining import NOTES_TAG, RUN_TAG
    from storage.tracking.model_state import Change
    from storage.tracking.registry import ModelRegistry

    settings = current_settings()
    left = retrain(benchmark="burgers", watched=sys.argv[1], return_state=True)
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(retrain, parameters={"benchmark": "burgers"}, state=Pending())
        by = {RUN_TAG: str(run.id), NOTES_TAG: json.dumps(["its samples are unlike the others"])}
        registry = ModelRegistry(settings.tracking_uri, settings.root)
        registry.note("pde-burgers", Change(versions={2: by}))
        run_flow(retrain, flow_run=run, parameters=run.parameters, return_type="state")
        went_on = client.read_flow_run(run.id).state
        told, wanted = [], {"event": {"name": ["lsm.retraining.judged"]}}
        while len(told) < 2:
            time.sleep(0.5)
            found = client.request("POST", "/events/filter", json={"filter": wanted}).json()
            told = found["events"]
    said = [[state.name, state.message] for state in (left, went_on)]
    events = [event["payload"]["reason"] for event in sorted(told, key=lambda e: e["occurred"])]
    print(json.dumps({"said": said, "events": events}), flush=True)
os._exit(0)  # what Prefect still wants to send has no server any more
"""

OWN_DATA = """
import json, os, sys
from pathlib import Path
from flows.engine.own_server import prefect_api
from flows.settings import Settings

with prefect_api(Settings.from_environment()):
    from flows.ingest import ingest
    from flows.retrain import retrain
    from flows.steps.data.file_arrays import files_of
    from flows.steps.data.guessing import Wishes, guessed
    from flows.train import train

    folder = Path(sys.argv[1])
    files = files_of([folder / "first"])
    wished = Wishes(inputs=tuple(sys.argv[2].split(",")), targets=tuple(sys.argv[3].split(",")))
    ingest([str(path) for path in files], guessed("own-data2", files, wished).to_plain())
    train(["own-data2"], [sys.argv[4]], "smoke", [0])
    told = []
    for _ in range(2):
        state = retrain(benchmark="own-data2", watched=str(folder / "watched"), return_state=True)
        told.append([state.name, state.message, state.result()])
    print(json.dumps(told), flush=True)
os._exit(0)
"""
"""Files in `first` become a problem with a champion, those in `watched` its challenger."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["npz", "vtu"])
def test_own_files_in_a_watched_folder_are_a_challenger_of_their_champion(
    kind: str, tmp_path: Path
) -> None:
    for name, numbers in {"first": range(24), "watched": range(30, 36)}.items():
        (tmp_path / name).mkdir()
        if kind == "vtu":
            pytest.importorskip("pyvista", reason="pyvista is not installed (extra `mesh`)")
            from tests.flows.steps.models.test_own_files import plate

            for number in numbers:
                plate(tmp_path / name / f"{number}.vtu", number)
        else:
            random = np.random.default_rng(numbers.start)
            a = random.random((len(numbers), 16, 12))
            np.savez(tmp_path / name / "some.npz", a=a, u=np.cumsum(a, axis=1) / 16)
            os.utime(tmp_path / name / "some.npz", (1, 1))
    words = {"vtu": ("load,q", "u,drag", "transolver"), "npz": ("a", "u", "fno")}[kind]
    root = tmp_path / "store"
    first, again = told_by(OWN_DATA, root, str(tmp_path), *words)
    assert first[0] in ("Promoted", "Kept")
    assert (first[2]["model"], first[2]["champion"]) == ("pde-own-data2", 1)
    assert first[2]["challenger"] > 1
    assert again[0] == "NothingNew"
    registry = ModelRegistry(f"sqlite:///{root}/mlflow.db", Location.parse(str(root)))
    champion = registry.find("pde-own-data2@champion").number
    assert champion == (first[2]["challenger"] if first[0] == "Promoted" else 1)
    challenger = registry.find(f"pde-own-data2/{first[2]['challenger']}")
    assert json.loads(challenger.tags["added"])


def told_by(script: str, root: Path, *words: str) -> list[list[Any]]:
    """Return what a script that starts a server prints last."""
    ours = ("LSM_", "PREFECT_", "MLFLOW_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=REPOSITORY,
        env={**kept, "LSM_STORE": str(root), "DO_NOT_TRACK": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_file_that_was_left_is_told_with_the_verdict_and_a_run_that_goes_on_tells_its_notes(
    tmp_path: Path,
) -> None:
    root, watched = Location.parse(str(tmp_path / "store")), tmp_path / "watched"
    uri = f"sqlite:///{root.local_path}/mlflow.db"
    for seed in (0, 1):
        made = cell("burgers", "fno", seed)
        write_run(made, root)
        register_run(made.identity, root, uri)
    judged = {"promoted": "False", "state": "Kept", "reason": "not better", "against": "1"}
    tags = {f"judged/{name}": value for name, value in judged.items()}
    change = Change(aliases={"champion": 1}, versions={2: {**tags, "suite": "retrain"}})
    ModelRegistry(uri, root).note(NAME, change)
    watched.mkdir()
    np.savez(watched / "coarse.npz", initial=np.zeros((4, 32)), final=np.zeros((4, 32)))
    os.utime(watched / "coarse.npz", (1, 1))

    ours = ("LSM_", "PREFECT_", "MLFLOW_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(watched)],
        cwd=REPOSITORY,
        env={**kept, "LSM_STORE": str(root.local_path), "DO_NOT_TRACK": "true"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    (left, went_on), events = told["said"], told["events"]
    assert left[0] == "NothingNew"
    assert "coarse.npz was left: " in left[1]
    assert went_on == ["Kept", "not better; its samples are unlike the others"]
    assert events == [left[1], went_on[1]]
