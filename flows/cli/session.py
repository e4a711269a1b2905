"""What commands have in common: settings, a Prefect server, progress, and how results are shown."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.settings import Settings


@contextmanager
def session(*, trains: bool = False) -> Iterator["Settings"]:
    """Provide what a flow needs while the block runs, and the settings that it will use.

    Prefect reads the environment when it is imported: import the flow inside the block.
    """
    from flows.engine.own_server import prefect_api
    from flows.engine.progress import show_progress
    from flows.settings import current_settings, use_settings

    settings = current_settings()
    if trains:
        from flows.steps.training.isolation import prepare_isolation

        prepare_isolation()
    with use_settings(settings), prefect_api(settings), show_progress():
        yield settings


def show(options: argparse.Namespace, plain: Any, text: str) -> None:
    """Print plain data, or what can be made such, for programs, or what says it to people."""
    print(json.dumps(plain, default=lambda value: value.to_plain()) if options.json else text)


def shown_path(place: str) -> str:
    """Return a path below this folder as a relative one, anything else as it is."""
    path = place.removeprefix("file://")
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
