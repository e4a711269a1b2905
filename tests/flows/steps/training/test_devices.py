"""Which GPUs a training sees; eight of them are pretended, with a CPU underneath."""

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flows.errors import BadInput
from flows.steps.training.cells import bind
from flows.steps.training.devices import Slot, choose_device, joined_ranks, slots
from flows.steps.training.isolation import Report, run_isolated
from flows.steps.training.run import train
from flows.steps.training.workplace import Workplace
from lsm_core.experiments import presets
from lsm_core.experiments.experiment import BoundExperiment
from storage.location import Location
from tests.flows.steps.data.generation import generated

GPUS = [str(number) for number in range(8)]


@pytest.fixture(autouse=True)
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend eight GPUs, of which CUDA shows those that the environment names."""

    def device_count() -> int:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        return 8 if named is None else len([each for each in named.split(",") if each])

    for name in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.cuda.device_count", device_count)
    monkeypatch.setattr("torch.cuda.is_available", lambda: device_count() > 0)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)


def visible(found: list[Slot]) -> list[str | None]:
    return [slot.visible for slot in found]


def test_eight_gpus_have_a_cell_each() -> None:
    found = slots("auto", n_cells=24, n_workers=64)
    assert visible(found) == GPUS
    assert {slot.device for slot in found} == {"cuda"}
    assert visible(slots("auto", n_cells=3, n_workers=64)) == GPUS[:3]


def test_an_outer_choice_of_gpus_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert visible(slots("cuda", n_cells=24, n_workers=64)) == ["2", "5"]
    assert visible(slots("cuda:1", n_cells=24, n_workers=64)) == ["5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8b1c, GPU-77aa")
    assert visible(slots("auto", n_cells=24, n_workers=64)) == ["GPU-8b1c", "GPU-77aa"]


def test_small_cells_may_share_a_gpu() -> None:
    found = visible(slots("auto", n_cells=24, n_workers=64, runs_per_gpu=2))
    assert found == [*GPUS, *GPUS]
    assert Counter(found[:8]) == Counter(GPUS)  # none has two before all have one


def test_ranks_have_a_gpu_each() -> None:
    assert visible(slots("auto", n_cells=9, n_workers=64, n_ranks=3)) == ["0,1,2", "3,4,5"]
    with pytest.raises(BadInput, match="9 ranks need a GPU each, and auto has 8"):
        slots("auto", n_cells=1, n_workers=64, n_ranks=9)
    with pytest.raises(BadInput, match="2 ranks need a GPU each, and cuda:1 has 1"):
        slots("cuda:1", n_cells=1, n_workers=64, n_ranks=2)


def test_whoever_wants_the_cpu_has_it_and_sees_no_gpu() -> None:
    assert slots("cpu", n_cells=24, n_workers=4) == [Slot("cpu", "")] * 4
    assert slots("cpu", n_cells=24, n_workers=4, n_ranks=2) == [Slot("cpu", "")] * 2


def test_without_a_gpu_every_core_has_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert slots("auto", n_cells=3, n_workers=4) == [Slot("cpu", "")] * 3
    assert slots("cuda", n_cells=3, n_workers=4) == [Slot("cuda")]  # a run that says what is wrong
    with pytest.raises(ValueError, match="LSM_DEVICE is cuda, but torch sees no such device"):
        choose_device("cuda")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="LSM_DEVICE is cuda:9, and torch sees 8 GPUs"):
        slots("cuda:9", n_cells=1, n_workers=1)
    with pytest.raises(ValueError, match="no GPU 9 here: torch sees 8"):
        choose_device("cuda:9")
    monkeypatch.setenv("LOCAL_RANK", "11")
    with pytest.raises(ValueError, match="no GPU 11 here"):
        choose_device("cuda")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="one GPU for 4 ranks"):
        choose_device("cuda:1")


def test_a_rank_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device("auto") == torch.device("cuda", 3)
    assert choose_device("cpu") == torch.device("cpu")


def test_ranks_on_gpus_are_joined_with_a_device_and_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {}

    def join(backend: str, **settings: object) -> None:
        asked.update(settings, backend=backend)

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("torch.distributed.init_process_group", join)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    with joined_ranks(torch.device("cuda", 1)):
        pass
    assert asked["backend"] == "nccl"
    assert asked["device_id"] == torch.device("cuda", 1)
    assert asked["timeout"].total_seconds() >= 3600


def see_and_wait(folder: str, n_others: int, report: Report) -> str | None:
    """Return which GPUs this process sees, once as many others are there as are wanted."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    (Path(folder) / f"{os.getpid()}").touch()
    while len(os.listdir(folder)) < n_others:
        threading.Event().wait(0.02)
    return seen


@pytest.mark.parametrize(("outer", "own"), [(None, GPUS), ("2,5", ["2", "5"])])
def test_processes_at_once_are_told_a_gpu_each(
    outer: str | None, own: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if outer is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outer)
    found = slots("auto", n_cells=24, n_workers=64)

    def run(slot: Slot) -> str | None:
        return run_isolated(see_and_wait, str(tmp_path), len(found), environment=slot.environment)

    with ThreadPoolExecutor(len(found)) as at_once:
        assert sorted(at_once.map(run, found)) == own


def small_cell(seed: int) -> BoundExperiment:
    made = presets.experiment("smoke", "burgers", "fno", seed)
    benchmark = replace(made.data.benchmark, resolution=32, solver_points=64, solver_steps=20)
    return bind(replace(made, data=replace(made.data, benchmark=benchmark)))


def train_beside_others(
    cell: BoundExperiment, place: Workplace, folder: str, n_others: int, report: Report
) -> tuple[str | None, float]:
    """Return which GPUs this process sees, and the error of what it trains beside the others."""
    seen = see_and_wait(folder, n_others, report)
    return seen, train(cell, place, report).error


@pytest.mark.slow
@pytest.mark.parametrize(("outer", "own"), [(None, GPUS), ("2,5", ["2", "5"])])
def test_as_many_cells_as_gpus_train_at_once(
    outer: str | None, own: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if outer is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", outer)
    cells = [small_cell(seed) for seed in range(len(own))]
    root, together = Location.parse(str(tmp_path / "store")), tmp_path / "together"
    together.mkdir()
    dataset = generated(cells[0].data, root).location

    def run(cell: BoundExperiment, slot: Slot) -> tuple[str | None, float]:
        on_cpu = Workplace(
            root=root,
            dataset=dataset,
            tracking_uri=f"sqlite:///{tmp_path}/{slot.visible}.db",
            study="benchmark",
            n_threads=1,
            slot=replace(slot, device="cpu"),
        )
        environment = slot.environment
        return run_isolated(
            train_beside_others, cell, on_cpu, str(together), len(own), environment=environment
        )

    found = slots("auto", n_cells=24, n_workers=64)
    with ThreadPoolExecutor(len(own)) as at_once:
        results = list(at_once.map(run, cells, found))
    assert [seen for seen, _ in results] == own
    assert len({error for _, error in results}) == len(own)
    assert all(0 < error < 1 for _, error in results)
