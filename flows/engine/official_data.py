"""Official data in place of generated: fetched and converted inside a flow, before any training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from flows.engine.server_loss import is_server_loss
from flows.engine.tasks import convert_official
from flows.errors import BadInput
from flows.settings import Settings
from lsm_core.names import BenchmarkName
from lsm_core.result import Failure
from storage.errors import StoreUnavailable
from storage.location import Location

if TYPE_CHECKING:
    from lsm_core.experiments.experiment import BoundExperiment
    from lsm_core.experiments.plans import DataPlan, OfficialPlan


def on_official_data(
    cells: Sequence["BoundExperiment"], settings: Settings
) -> tuple[list["BoundExperiment"], list[Failure]]:
    """Return cells on official data in place of their own, and the failures of those without any.

    Whether the files have the grid and the samples that are asked for is looked up before anything
    is fetched. Files that cannot be had stop only the cells that need them, and all if none can be.
    """
    from flows.steps.data.official import identified, official_plan
    from flows.steps.training import cells as steps

    wanted = dict.fromkeys(plan for cell in cells for plan in steps.plans_of(cell))
    plans = {plan: official_plan(plan, settings.mirrors) for plan in wanted}
    for cell in cells:
        steps.on_official_data(cell, plans)  # refuses what makes no sense
    broken: dict[DataPlan, Exception] = {}
    for plan, official in plans.items():
        try:
            place = _converted(official, settings)
        except (StoreUnavailable, BadInput):
            raise  # as with all others
        except Exception as error:
            if is_server_loss(error):
                raise
            broken[plan] = error
        else:
            plans[plan] = identified(official, Location(place))
    if plans and len(broken) == len(plans):
        raise next(iter(broken.values()))
    moved: list[BoundExperiment] = []
    lost: list[Failure] = []
    for cell in cells:
        on_files = steps.on_official_data(cell, plans)
        why = next((broken[plan] for plan in steps.plans_of(cell) if plan in broken), None)
        if why is None:
            moved.append(on_files)
        else:
            lost.append(steps.failed(on_files, why))
    return moved, lost


def _converted(plan: "OfficialPlan", settings: Settings) -> str:
    name = cast(BenchmarkName, plan.benchmark.name)
    return convert_official(name, settings, [], plan.stride)
