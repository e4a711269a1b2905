"""Flow `cell`: one cell of a comparison, trained by whichever worker takes it."""

from contextlib import suppress
from threading import Event
from typing import Any

from prefect import flow

from flows.engine.schedule import cell_name
from flows.engine.tasks import train_cell
from flows.engine.tries import A_WEEK
from flows.parameters import Device, ProblemName
from flows.settings import current_settings
from lsm_core.names import ModelName, PresetName
from storage.errors import LeaseLost


@flow(name="cell", retries=0, timeout_seconds=A_WEEK)  # its task is tried again
def cell(
    identity: str,
    benchmark: ProblemName,
    model: ModelName,
    preset: PresetName,
    seed: int = 0,
    study: str = "benchmark",
    setting: str = "",
    data: str = "",
    device: Device | None = None,
) -> dict[str, Any]:
    """Train one cell that a comparison has asked for and return its error.

    The comparison has kept what the cell is in the store. Nothing else decides what is trained; the
    other parameters are for people who read them.

    Args:
        identity: The hash that names the run; experiments/IDENTITY.json in the store has the rest.
        benchmark: The problem that is learned.
        model: The model that is trained.
        preset: The size of data, model and training.
        seed: The seed of the weights and of the order of samples.
        study: The comparison that asked for it first.
        setting: What the cell is called there, where problem and model do not tell.
        data: Where its dataset lies.
        device: What to train on; none given means LSM_DEVICE of the worker.

    """
    from flows.steps.data.datasets import location_of
    from flows.steps.training.cells import kept_cell
    from flows.steps.training.devices import slots
    from flows.steps.training.isolation import prepare_isolation
    from flows.steps.training.workplace import workplace

    prepare_isolation()
    settings = current_settings()
    asked = kept_cell(identity, settings.root)
    place = workplace(
        settings,
        data or location_of(asked.data, settings.root).url,
        study=study,
        n_threads=settings.n_workers,
        setting=setting,
        slot=slots(device or settings.device, 1, settings.n_workers)[0],
    )
    result = None
    while result is None:
        # Another that has taken the cell over, since this machine slept, is waited for.
        with suppress(LeaseLost):
            result = train_cell(cell_name(asked, setting), asked, place, 1, Event(), wait=True)
    return {"identity": identity, "rel_l2": result.error}
