"""Configurations back from plain data: the inverse of `dataclasses.asdict` and JSON."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Config = TypeVar("Config")

_SCALARS = (type(None), bool, int, float, str)


def from_plain(kind: type[Config], values: Any) -> Config:
    """Return the dataclass of this kind whose fields `values` holds by name.

    Lists become the tuples they were, nested mappings the dataclasses they were. Every field has
    to be there, and nothing else: a default of today need not be the one of the day when the
    values were written down.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{kind.__name__} needs settings by name, got {values!r}")
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    if missing or unknown:
        faults = [f"lack {', '.join(missing)}"] * bool(missing)
        faults += [f"have {', '.join(unknown)}, which it does not know"] * bool(unknown)
        raise ValueError(
            f"these settings are not of {kind.__name__}: they {' and '.join(faults)}; they were "
            "written by another version"
        )
    hints = get_type_hints(kind)
    return kind(**{n: _restored(hints[n], values[n], f"{kind.__name__}.{n}") for n in names})


def _restored(hint: Any, value: Any, place: str) -> Any:
    """Return a value as its annotation says it was; what is a dataclass already stays."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(value):
        return value
    if is_dataclass(hint):
        return from_plain(hint, value)  # type: ignore[arg-type]
    if origin in (Union, UnionType):
        return _one_of(arguments, value, place)
    if origin is tuple:
        return _tuple_of(arguments, value, place)
    if origin is Literal and value not in arguments:
        raise ValueError(f"{place} must be one of {arguments}, got {value!r}")
    if hint in _SCALARS and not _is_scalar(hint, value):
        raise ValueError(f"{place} must be of type {hint.__name__}, got {value!r}")
    return value


def _is_scalar(hint: type, value: Any) -> bool:
    """Return whether a value is of a type; integers are floats, too, and booleans are neither."""
    kinds = (float, int) if hint is float else hint
    return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))


def _one_of(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    for kind in kinds:
        try:
            return _restored(kind, value, place)
        except ValueError:
            continue
    names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
    raise ValueError(f"{place} must be of type {names}, got {value!r}")


def _tuple_of(kinds: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{place} must be a list, got {value!r}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{place} must have {len(kinds)} entries, got {value!r}")
    return tuple(_restored(*pair, place) for pair in zip(kinds, value, strict=True))
