"""What commands have in common: settings, a Prefect server, progress, and how results are shown."""

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


def show(plain: Any, text: str, *, as_json: bool) -> None:
    """Print a value for programs, or what says the same to people."""
    print(as_text(plain) if as_json else text)


def as_text(plain: Any) -> str:
    """Return plain data, or what can be made such, as JSON."""
    return json.dumps(plain, default=lambda value: value.to_plain())


def shown_path(place: str) -> str:
    """Return a path below this folder as a relative one, anything else as it is."""
    path = place.removeprefix("file://")
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
