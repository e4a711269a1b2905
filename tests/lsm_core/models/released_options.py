"""Options of the released scripts, as the reference values hold them."""

from collections.abc import Mapping
from typing import Any

from lsm_core.models.released_weights import ReleasedSettings

TUPLES = ("patch_size", "padding", "space")


def settings_from(options: Mapping[str, Any]) -> ReleasedSettings:
    """Return the settings from options as a script takes them, with sizes as "3,3"."""
    known = {
        name: tuple(map(int, str(value).split(","))) if name in TUPLES else int(value)
        for name, value in options.items()
        if name in ReleasedSettings.__dataclass_fields__
    }
    return ReleasedSettings(**known)
