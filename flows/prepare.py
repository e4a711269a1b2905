"""Flow `prepare`: the datasets of a preset, generated and complete."""

from typing import Any, get_args

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.engine.run_names import named, some
from flows.engine.tasks import convert_official, generate_dataset
from flows.engine.tries import A_MONTH, tried_once_more
from flows.errors import BadInput
from flows.parameters import Benchmarks, Positive
from flows.settings import current_settings
from lsm_core.names import BenchmarkName, PresetName


def _name(parameters: dict[str, Any]) -> str:
    kind = "official files" if parameters["official"] else parameters["preset"]
    return f"prepare-{kind}: {some(parameters['benchmarks'], 'all problems')}"


@flow(name="prepare", flow_run_name=named(_name), timeout_seconds=A_MONTH)
@tried_once_more
def prepare(
    benchmarks: Benchmarks | None = None,
    preset: PresetName = "quick",
    resolutions: list[Positive] | None = None,
    official: bool = False,
    mirrors: list[str] | None = None,
    stride: Positive | None = None,
) -> dict[str, str]:
    """Fill the datasets of some benchmarks and return their places.

    What is there already is kept, so a second call ends at once.

    Args:
        benchmarks: The problems; none named means all eight.
        preset: How many samples, and on which grids: smoke, quick, paper or release.
        resolutions: Points along an axis, a dataset for each; none given means the preset's grid.
        official: Download and convert the published files instead of solving.
        mirrors: Places to ask for official files first.
        stride: Take every so many points of the official files.

    """
    from flows.steps.data.datasets import location_of
    from flows.steps.data.given import given_plan
    from lsm_core.experiments.protocols import variants
    from storage.datasets.reader import open_dataset

    settings = current_settings()
    given = [name for name in benchmarks or () if name not in get_args(BenchmarkName)]
    known: Any = [name for name in benchmarks or get_args(BenchmarkName) if name not in given]
    if given and (official or resolutions):
        raise BadInput(
            f"{given[0]} was brought as it is: it has one resolution and no official files"
        )
    places: dict[str, str]
    if official:
        places = {
            name: convert_official(name, settings, mirrors or [], stride, announce=True)
            for name in known
        }
    else:
        plans = variants(preset, known, resolutions or ())
        places = {
            name: generate_dataset(plan, settings, announce=True) for name, plan in plans.items()
        }
    for name in given:
        place = location_of(given_plan(name, settings.root), settings.root)
        places[name] = open_dataset(place).location.url
    page = "\n".join(f"- {name}: `{place}`" for name, place in places.items())
    create_markdown_artifact(page, key="datasets", description="Complete datasets")
    return places
