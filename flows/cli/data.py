"""What the commands of data do.

Heavy packages are imported inside, here and in the other commands: help answers at once.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, get_args

from flows.cli.session import session, show, shown_path
from lsm_core.names import PRESET_PURPOSES, BenchmarkName, ModelName


def list_names(options: argparse.Namespace) -> None:
    """Show benchmarks, models and presets, or one data card."""
    from flows.settings import Settings
    from flows.steps.data.given import given_names, record_of
    from lsm_core.benchmarks.catalogue import BENCHMARKS, data_card

    root = Settings.from_environment().root
    if options.name and options.name not in BENCHMARKS:
        card = str(record_of(options.name, root)["declaration"])
        show(options, {"name": options.name, "card": card}, card)
        return
    if options.name:
        card = data_card(options.name)
        show(options, {"name": options.name, "card": card}, card)
        return
    benchmarks = {name: made.title for name, made in BENCHMARKS.items()}
    models = list(get_args(ModelName))
    lines = [
        "Benchmarks (`lsm list NAME` shows the data card)",
        *(f"  {name:<14} {title}" for name, title in benchmarks.items()),
        *(f"  {name:<14} brought by you" for name in given_names(root)),
        f"Models\n  {', '.join(models)}\nPresets",
        *(f"  {preset:<14} {purpose}" for preset, purpose in PRESET_PURPOSES.items()),
    ]
    names = {
        "benchmarks": benchmarks,
        "given": given_names(root),
        "models": models,
        "presets": PRESET_PURPOSES,
    }
    show(options, names, "\n".join(lines))


def prepare(options: argparse.Namespace) -> None:
    """Make the data of benchmarks; answer from the store where it has all of them."""
    from flows.errors import BadInput
    from lsm_core.experiments.protocols import variants
    from storage.errors import translated

    if bool(options.names) == options.all:
        raise BadInput("name the benchmarks to prepare, or say --all; `lsm list` shows them")
    names = options.names or list(get_args(BenchmarkName))
    benchmarks: Any = [name for name in names if name in get_args(BenchmarkName)]
    with translated(ValueError, into=BadInput):
        plans = variants(options.preset, benchmarks, options.resolution or ())
    is_official = options.official or bool(options.mirrors)
    is_generated = not is_official and len(benchmarks) == len(names)
    places = _complete_places(plans) if is_generated else None
    if places is None:
        with session():
            from flows.prepare import prepare

            places = prepare(
                names,
                options.preset,
                options.resolution,
                official=is_official,
                mirrors=options.mirrors,
                stride=options.stride,
            )
    if options.export:
        _export(places, Path(options.export))
    given = {name for name in names if name not in benchmarks}
    lines = [
        f"{name}: {shown_path(place)}{', as it was given' if name in given else ''}"
        for name, place in places.items()
    ]
    show(options, places, "\n".join(lines))


def _complete_places(plans: dict[str, Any]) -> dict[str, str] | None:
    """Return where the datasets of some plans lie, or None if one has to be made.

    NotADataset, before any server is started, if something else lies in a place.
    """
    from flows.settings import current_settings
    from flows.steps.data.datasets import plan_generation

    root = current_settings().root
    jobs = {name: plan_generation(plan, root) for name, plan in plans.items()}
    is_complete = [job.is_complete() for job in jobs.values()]
    if not all(is_complete):
        return None
    for job in jobs.values():
        job.finish()
    return {name: job.location.url for name, job in jobs.items()}


def _export(places: dict[str, str], folder: Path) -> None:
    from storage.datasets.reader import open_dataset
    from storage.location import Location
    from storage.official.export import export_dataset

    for place in places.values():
        for path in export_dataset(open_dataset(Location(place)), folder):
            print(f"wrote {shown_path(str(path))}", file=sys.stderr)
