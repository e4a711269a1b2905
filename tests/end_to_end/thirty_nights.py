"""Thirty nights of retraining against a real stack, at smoke size, with the clock pushed.

    python -m tests.end_to_end.thirty_nights FOLDER      a stack runs, and Burgers has a champion

Every night is a run of the flow that the server knows as due on its own date, a month from the
first to the last, run one after the other without waiting. Files appear in a watched folder, or do
not. Whether a champion was to change is measured apart, on samples that nobody else sees.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

FIRST_SEED, TRUTH_SEED, N_TRUTH = 5_000_000, 9_000_000, 200
NIGHTS = (
    *("equal", "empty", "empty", "broken", "equal", "empty", "empty", "killed", "empty", "empty"),
    *("empty", "empty", "broken", "empty", "better", "empty", "empty", "refused", "empty", "empty"),
    *("shifted", "empty", "empty", "broken", "empty", "empty", "empty", "empty", "empty", "empty"),
)
N_SAMPLES = {"equal": 5, "killed": 5, "broken": 10, "better": 40, "refused": 10, "shifted": 20}
SIZES = {"broken": 100.0, "shifted": 2.0}
"""By what initial fields are multiplied: other units, and another regime, solved as such."""
MOST = {"max_samples": 400, "keep_versions": 3}


def samples(kind: str, night: int) -> dict[str, np.ndarray]:
    """Return the samples that come in a night, solved by the solver of the problem."""
    from lsm_core.benchmarks.burgers import FINEST_RESOLUTION, initial_modes
    from lsm_core.solvers.spectral.burgers import solve_burgers

    seeds = range(FIRST_SEED + 1000 * night, FIRST_SEED + 1000 * night + N_SAMPLES[kind])
    initial = np.stack([initial_modes(seed) for seed in seeds])
    size = SIZES.get(kind, 1.0)
    given = initial * (size if kind == "shifted" else 1.0)
    final = solve_burgers(
        given, viscosity=0.1, period=2 * np.pi, final_time=1.0, n_points=384, n_steps=200
    )
    fields = {"initial": given, "final": final}
    values = {
        name: np.fft.irfft(modes, FINEST_RESOLUTION, norm="forward")[:, ::128].astype(np.float32)
        for name, modes in fields.items()
    }
    return {n: v * (size if kind == "broken" else 1.0) for n, v in values.items()}


def put(folder: Path, kind: str, night: int) -> None:
    """Let a file of the kind appear in the watched folder, long enough ago to be whole."""
    for old in folder.glob("*.npz"):
        old.unlink()
    if kind != "empty":
        file = folder / f"night-{night:02d}-{kind}.npz"
        np.savez(file, **samples(kind, night))
        os.utime(file, (time.time() - 3600,) * 2)


def true_error(number: int) -> float:
    """Return the mean error of a version of Burgers on samples that nobody else sees."""
    from flows.settings import current_settings
    from flows.steps.models.measurement import _errors
    from flows.steps.models.packaging import registered_model
    from flows.steps.training.fields import fields_of
    from storage.tracking.registry import ModelRegistry

    settings = current_settings()
    registry = ModelRegistry(settings.tracking_uri, settings.root)
    model = registered_model(registry, registry.find(f"pde-burgers/{number}"))
    made = model.benchmark.generate_many(range(TRUTH_SEED, TRUTH_SEED + N_TRUTH))
    arrays = {name: np.stack([each[name] for each in made]) for name in ("initial", "final")}
    return float(_errors(model, fields_of(arrays, model.benchmark).split(100)).mean())


def begin(parameters: dict[str, Any], due: datetime) -> Any:
    """Tell the server of a run that is due at a time."""
    from prefect.client.orchestration import get_client
    from prefect.states import Scheduled

    from flows.retrain import retrain

    with get_client(sync_client=True) as client:
        return client.create_flow_run(
            retrain, parameters=parameters, state=Scheduled(scheduled_time=due)
        )


def go_on(run: Any) -> Any:
    """Run what the server knows, to its end or to where it is suspended; return the state."""
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow

    from flows.retrain import retrain

    with get_client(sync_client=True) as client:
        known = client.read_flow_run(run.id)
        run_flow(retrain, flow_run=known, parameters=known.parameters, return_type="state")
        return client.read_flow_run(run.id).state


def go_on_elsewhere(run_id: str) -> None:
    """Run it in this process alone, which is to be killed."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        go_on(client.read_flow_run(run_id))


def killed(run: Any, store: Path) -> None:
    """Run in a process of its own that is killed as soon as its challenger has begun to train."""
    before = {each.name for each in (store / "checkpoints").iterdir()}
    child = get_context("spawn").Process(target=go_on_elsewhere, args=(str(run.id),))
    child.start()
    deadline = time.monotonic() + 600
    while child.is_alive() and {e.name for e in (store / "checkpoints").iterdir()} == before:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()


def answer(run: Any, promote: bool, why: str) -> None:
    """Say what a person says on the page of a suspended run."""
    from prefect.flow_runs import resume_flow_run

    resume_flow_run(run.id, run_input={"promote": promote, "why": why})


@contextmanager
def notifications() -> Iterator[list[dict[str, Any]]]:
    """Switch the notifications on, to a server of our own; provide what it gets."""
    from prefect.client.orchestration import get_client

    from flows.retrain import JUDGED

    got: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert JUDGED
    with get_client(sync_client=True) as client:
        (block,) = [e for e in client.read_block_documents() if e.name == "lsm-verdicts"]
        from prefect.client.schemas.actions import BlockDocumentUpdate

        data = {**block.data, "url": f"http://127.0.0.1:{server.server_port}/"}
        client.update_block_document(block.id, BlockDocumentUpdate(data=data))
        (told,) = client.read_automations_by_name("lsm tells verdicts")
        client.resume_automation(told.id)
        try:
            yield got
        finally:
            client.pause_automation(told.id)
            server.shutdown()


def night(number: int, kind: str, watched: Path, store: Path, due: datetime) -> dict[str, Any]:
    """Let a night pass, and return what came of it."""
    from flows.settings import current_settings
    from storage.tracking.registry import ModelRegistry

    settings = current_settings()
    registry = ModelRegistry(settings.tracking_uri, settings.root)
    before = registry.find("pde-burgers@champion").number
    put(watched, kind, number)
    parameters = {"benchmark": "burgers", "watched": str(watched), **MOST}
    run = begin(parameters | {"approve": kind == "refused"}, due)
    if kind == "killed":
        killed(run, store)
    state = go_on(run)
    waited = state.name == "Suspended"
    if waited:
        answer(run, False, "the plant is not to change this week")
        state = go_on(run)
    models = registry.state("pde-burgers")
    champion = models.champion("smoke")
    assert champion is not None
    newest = max(models.versions)
    row = {
        "night": number,
        "kind": kind,
        "state": state.name,
        "champion": [before, champion.number],
        "said": state.message,
        "waited": waited,
        "versions": len(models.versions),
        "datasets": len(list((store / "datasets" / "burgers").glob("*.zarr"))),
        "bytes": sum(f.stat().st_size for f in store.rglob("*.npz")),
    }
    if kind not in ("empty", "broken") and state.name != "NothingNew":
        row["truth"] = [round(true_error(each), 5) for each in (before, newest)]
    return row


def main(folder: Path) -> None:
    """Let thirty nights pass, and print a line each; what was written before is gone on with."""
    store, watched = Path(os.environ["LSM_STORE"]), folder / "watched"
    watched.mkdir(parents=True, exist_ok=True)
    kept = folder / "nights.jsonl"
    done = len(kept.read_text().splitlines()) if kept.exists() else 0
    first = datetime.now(UTC).replace(hour=3, minute=0) - timedelta(days=len(NIGHTS))
    with notifications() as told:
        for number, kind in enumerate(NIGHTS, start=1):
            if number <= done:
                continue
            row = night(number, kind, watched, store, first + timedelta(days=number))
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
        time.sleep(5)
        (folder / "told.json").write_text(json.dumps(told, indent=1))
        print(f"{len(told)} notifications", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
