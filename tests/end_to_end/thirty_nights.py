"""Thirty nights of retraining on a real stack, at smoke size, with the clock pushed.

    python -m tests.end_to_end.thirty_nights FOLDER      a stack runs, and Burgers has a champion
    python -m tests.end_to_end.thirty_nights FOLDER table         what it wrote, for infra/nights.md

Every night is a run of `retrain/scheduled` that is due on a date of its own, thirty days from the
first to the last, run one after the other without waiting: in this process, which has everything
imported; by the stack's worker where it has to come back. Files appear in a watched folder, or do
not. Whether a champion was to change is measured apart, on samples that
nobody else sees. What was written before is gone on with; the end is a list of what is not as it
should be, and an error if there is anything on it.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State

Row = dict[str, Any]
FIRST_SEED, TRUTH_SEED, N_TRUTH = 5_000_000, 9_000_000, 200
NIGHTS = (
    *("equal", "empty", "broken", "empty", "refused", "empty", "granted", "empty", "killed"),
    *("equal", "empty", "small", "shifted", "empty", "better", "empty", "equal", "empty", "misfit"),
    *("equal", "refused", "empty", "better", "empty", "granted", "shifted", "equal", "empty"),
    *("broken", "empty"),
)
N_SAMPLES = {
    **{"equal": 10, "killed": 11, "broken": 10, "small": 10, "misfit": 10},
    **{"refused": 41, "granted": 40, "shifted": 20, "better": 160},
}
SIZES = {"broken": 100.0, "small": 0.01, "shifted": 2.0}
"""By what fields are multiplied: other units; and the initial one, another regime, solved as such.
"""
USABLE = ("equal", "killed", "refused", "granted", "shifted", "better")
ANSWERS = {
    "refused": (False, "the plant is not to change this week"),
    "granted": (True, "looked at on the plant"),
}
MOST = {"max_samples": 400, "keep_versions": 3}
N_FIRST = 3
"""Models of the benchmark, which are no retrainings and stay."""
CLEAR = 0.25
"""A true error that falls by this part is to be seen by 16 samples, at levels of thousandths."""
PATIENCE = 900.0
COMES_BACK = 60
"""Seconds within which the server brings a failed run back, if it does."""
QUEUE = "nights"
BY_THE_WORKER = ("killed",)
"""What comes back after a death is started by the stack's worker."""


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
    step = 256 if kind == "misfit" else 128
    values = {
        name: np.fft.irfft(modes, FINEST_RESOLUTION, norm="forward")[:, ::step].astype(np.float32)
        for name, modes in fields.items()
    }
    return {n: v * (1.0 if kind == "shifted" else size) for n, v in values.items()}


def put(folder: Path, kind: str, night: int) -> None:
    """Let a file of the kind appear in the watched folder, long enough ago to be whole."""
    for old in folder.glob("*.npz"):
        old.unlink()
    if kind != "empty":
        file = folder / f"night-{night:02d}-{kind}.npz"
        np.savez(file, allow_pickle=False, **samples(kind, night))
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


def begin(parameters: dict[str, Any], due: datetime, queue: str | None) -> "FlowRun":
    """Submit a run that is due at a time, to a queue of the pool if one is named."""
    from prefect.client.orchestration import get_client
    from prefect.states import Scheduled

    from flows.retrain import DEPLOYMENT

    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(DEPLOYMENT)
        return client.create_flow_run_from_deployment(
            deployment.id,
            parameters=parameters,
            state=Scheduled(scheduled_time=due),
            work_queue_name=queue,
        )


def pause_queue() -> None:
    """See to it that no worker takes the runs that are run here."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectAlreadyExists

    from flows.settings import CONTROL_POOL

    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_queue(QUEUE, is_paused=True, work_pool_name=CONTROL_POOL)


def run_here(run: "FlowRun") -> None:
    """Run what the server knows in this process, as a worker does in one of its own."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import Pause
    from prefect.flow_engine import run_flow

    from flows.retrain import retrain

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run.id)
    with suppress(Pause):
        run_flow(retrain, flow_run=run, parameters=run.parameters, return_type="state")


def wait_for(run: "FlowRun", *names: str) -> "State[Any]":
    """Return the state of a run as soon as it has ended, or has one of some names."""
    from prefect.client.orchestration import get_client

    deadline, failed = time.monotonic() + PATIENCE, 0
    with get_client(sync_client=True) as client:
        while time.monotonic() < deadline:
            state = client.read_flow_run(run.id).state
            assert state is not None
            if state.name in names or state.is_completed():
                return state
            # One that crashed, or lost the server, comes back by itself.
            failed = failed + 1 if state.is_failed() or state.is_cancelled() else 0
            if failed > COMES_BACK:
                return state
            time.sleep(1)
    raise TimeoutError(f"{run.name} has not ended after {PATIENCE:.0f} s")


def kill(run: "FlowRun", store: Path) -> None:
    """Kill the process of a run as soon as its challenger has begun to train."""
    from prefect.client.orchestration import get_client

    before = {each.name for each in (store / "checkpoints").iterdir()}
    deadline = time.monotonic() + PATIENCE
    while {each.name for each in (store / "checkpoints").iterdir()} == before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with get_client(sync_client=True) as client:
        place = client.read_flow_run(run.id).infrastructure_pid
    assert place
    os.kill(int(place.rpartition(":")[2]), signal.SIGKILL)


def answer(run: "FlowRun", promote: bool, why: str) -> None:
    """Say what a person says on the page of a suspended run."""
    from prefect.flow_runs import resume_flow_run

    resume_flow_run(run.id, run_input={"promote": promote, "why": why})


@contextmanager
def notifications() -> Iterator[list[dict[str, Any]]]:
    """Switch the notifications on, to a server of our own; provide what it gets."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import BlockDocumentUpdate

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
    with get_client(sync_client=True) as client:
        (block,) = [e for e in client.read_block_documents() if e.name == "lsm-verdicts"]
        data = {**block.data, "url": f"http://127.0.0.1:{server.server_port}/"}
        client.update_block_document(block.id, BlockDocumentUpdate(data=data))
        (told,) = client.read_automations_by_name("lsm tells verdicts")
        client.resume_automation(told.id)
        try:
            yield got
        finally:
            client.pause_automation(told.id)
            server.shutdown()


def night(number: int, kind: str, watched: Path, store: Path, due: datetime) -> Row:
    """Let a night pass, and return what came of it."""
    from flows.settings import current_settings
    from storage.tracking.registry import ModelRegistry

    begun = time.monotonic()
    settings = current_settings()
    registry = ModelRegistry(settings.tracking_uri, settings.root)
    before = registry.state("pde-burgers")
    champion = before.champion("smoke")
    assert champion is not None
    # What a challenger is measured against: a champion that goes is not there to be loaded later.
    put(watched, kind, number)
    truth = [true_error(champion.number)] if kind in USABLE else []
    parameters = {"benchmark": "burgers", "watched": str(watched), **MOST}
    here = kind not in BY_THE_WORKER
    run = begin(parameters | {"approve": kind in ANSWERS}, due, QUEUE if here else None)
    if here:
        run_here(run)
    elif kind == "killed":
        kill(run, store)
    state = wait_for(run, "Suspended")
    waited = state.name == "Suspended"
    if waited:
        answer(run, *ANSWERS[kind])
        if here:
            run_here(run)
        state = wait_for(run)
    after = registry.state("pde-burgers")
    now = after.champion("smoke")
    assert now is not None
    if after.n_numbers > before.n_numbers:
        truth.append(true_error(after.n_numbers))
    return {
        "night": number,
        "kind": kind,
        "due": due.isoformat(),
        "state": state.name,
        "champion": [champion.number, now.number],
        "challenger": after.n_numbers if len(truth) > 1 else None,
        "said": state.message,
        "waited": waited,
        "truth": [round(each, 5) for each in truth],
        "versions": len(after.versions),
        "datasets": len(list((store / "datasets" / "burgers").glob("*.zarr"))),
        "megabytes": round(n_bytes(store) / 1e6, 2),
        "seconds": round(time.monotonic() - begun),
    }


def n_bytes(store: Path) -> int:
    """Return what data and weights of the problem take."""
    places = [store / "datasets" / "burgers", store / "added", store / "checkpoints"]
    files = (file for place in places for file in place.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def wrong_in(row: Row) -> Iterator[str]:
    """Yield what is not as it should be in a night."""
    state = row["state"]
    changed = row["champion"][0] != row["champion"][1]
    if changed != (state == "Promoted"):
        yield f"the champion went from {row['champion']}, the run ended as {state}"
    if not row["said"]:
        yield "nothing was said"
    if row["kind"] not in USABLE:
        file = f"night-{row['night']:02d}-{row['kind']}.npz was left"
        if state != "NothingNew":
            yield f"nothing could be used, and it ended as {state}"
        if row["kind"] != "empty" and file not in row["said"]:
            yield f"nothing is said of the file: {row['said']}"
    elif state not in ("Promoted", "Kept") or row["challenger"] is None:
        yield f"there were samples, and it ended as {state}"
    else:
        yield from _wrong_in_verdict(row, changed)


def _wrong_in_verdict(row: Row, changed: bool) -> Iterator[str]:
    kind, said = row["kind"], row["said"]
    gain = 1 - row["truth"][1] / row["truth"][0]
    if changed and gain <= 0:
        yield f"promoted, and the true error rose by {-gain:.1%}"
    if not changed and gain > CLEAR and kind != "refused" and "worse than allowed" not in said:
        yield f"kept, and the true error fell by {gain:.1%}"
    if kind == "shifted" and "unlike the training samples" not in said:
        yield "nothing is said of the shift"
    if row["waited"]:
        if kind not in ANSWERS:
            yield "it waited for a person"
        elif ANSWERS[kind][1] not in said or changed != ANSWERS[kind][0]:
            yield f"a person said {ANSWERS[kind]}, and it ended as {row['state']}: {said}"


def wrong_in_all(rows: list[Row], n_told: int) -> Iterator[str]:
    """Yield what is not as it should be in a month."""
    for row in rows:
        yield from (f"night {row['night']}, {row['kind']}: {each}" for each in wrong_in(row))
    for kind in ANSWERS:
        if not any(row["waited"] for row in rows if row["kind"] == kind):
            yield f"no {kind} night came to be asked"
    # Champion, the one before it and the challenger stay beside those that are kept.
    most = N_FIRST + MOST["keep_versions"] + 3
    if max(row["versions"] for row in rows) > most:
        yield f"more than {most} versions were registered"
    # One for each model that is registered, the test samples, and what a benchmark is of.
    if max(row["datasets"] for row in rows) > most + 2:
        yield f"there were more than {most + 2} datasets"
    waited = sum(row["waited"] for row in rows)
    if n_told != len(rows) + waited:
        yield f"{n_told} notifications of {len(rows)} verdicts and {waited} questions"


def table(rows: list[Row]) -> str:
    """Return the nights as a table in Markdown; a number of empty ones in a row is one line."""
    lines = [
        "| night | what came | ended as | champion | true error | versions | datasets | MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        before, after = row["champion"]
        champion = f"{before}" if before == after else f"{before} → **{after}**"
        truth = " → ".join(f"{100 * each:.2f} %" for each in row["truth"][:2])
        ended = f"{row['state']}, asked" if row["waited"] else row["state"]
        came = row["kind"] + (f", {N_SAMPLES[row['kind']]}" if row["kind"] != "empty" else "")
        lines.append(
            f"| {row['night']} | {came} | {ended} | {champion} | {truth} "
            f"| {row['versions']} | {row['datasets']} | {row['megabytes']} |"
        )
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Let thirty nights pass, and print a line each, the table and what is wrong."""
    store, watched = Path(os.environ["LSM_STORE"]), folder / "watched"
    watched.mkdir(parents=True, exist_ok=True)
    kept, heard = folder / "nights.jsonl", folder / "told.jsonl"
    kept.touch()
    heard.touch()
    done = len(kept.read_text().splitlines())
    first = datetime.now(UTC).replace(hour=3, minute=0) - timedelta(days=len(NIGHTS))
    pause_queue()
    with notifications() as told:
        for number, kind in enumerate(NIGHTS, start=1):
            if number <= done:
                continue
            row = night(number, kind, watched, store, first + timedelta(days=number - 1))
            wanted = 2 if row["waited"] else 1
            deadline = time.monotonic() + 30
            while len(told) < wanted and time.monotonic() < deadline:
                time.sleep(0.5)
            with kept.open("a") as file, heard.open("a") as notes:
                file.write(json.dumps(row) + "\n")
                notes.writelines(json.dumps(each) + "\n" for each in told)
            told.clear()
            print(json.dumps(row), *wrong_in(row), sep="\n  WRONG: ", flush=True)
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    print(table(rows))
    wrong = list(wrong_in_all(rows, len(heard.read_text().splitlines())))
    raise SystemExit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    if sys.argv[2:] == ["table"]:
        lines = (Path(sys.argv[1]) / "nights.jsonl").read_text().splitlines()
        print(table([json.loads(line) for line in lines]))
    else:
        main(Path(sys.argv[1]))
