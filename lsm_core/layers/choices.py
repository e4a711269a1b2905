"""Checks of the choices that a configuration makes."""

from typing import Any, get_args


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raise a ValueError unless the value is one of a `Literal`'s."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def check_at_least(least: int, config: object, *names: str) -> None:
    """Raise a ValueError unless the numbers of these names are that large; of tuples, all."""
    for name in names:
        value = getattr(config, name)
        smallest = min(value, default=least - 1) if isinstance(value, tuple) else value
        if smallest < least:
            wanted = f"be at least {least}" if least else "not be negative"
            raise ValueError(f"{name} must {wanted}, got {value}")
