"""Checks of the choices that a configuration makes."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin


def check_choices(config: Any, prefix: str = "") -> None:
    """Raise a ValueError unless every field that is a `Literal` has one of its values.

    The prefix stands before the name of the field in the message.
    """
    for field in fields(config):
        value, allowed = getattr(config, field.name), get_args(field.type)
        if get_origin(field.type) is Literal and value not in allowed:
            raise ValueError(
                f"{prefix}{field.name} must be one of {', '.join(allowed)}; got {value!r}"
            )


def check_at_least(least: int, config: object, *names: str) -> None:
    """Raise a ValueError unless the numbers of these names are that large; of tuples, all."""
    for name in names:
        value = getattr(config, name)
        smallest = min(value, default=least - 1) if isinstance(value, tuple) else value
        if smallest < least:
            wanted = f"be at least {least}" if least else "not be negative"
            raise ValueError(f"{name} must {wanted}, got {value}")
