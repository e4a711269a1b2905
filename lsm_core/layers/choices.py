"""Checks of the choices that a configuration makes."""

from typing import Any, get_args


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise a ValueError unless the value is one of a `Literal`'s."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
