"""JSON files whose syntax is whole and whose values are not what is expected."""

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

DEEP = "deeply nested"
DEPTH = 100_000
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**40),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "0", "-1", "1e999", "nan", "null", "None", "x" * 5000, "../../etc/passwd", "/", "a/b"),
    *("\x00", "\ud800", "\u202e", "\U0001f9ff", "e\u0301", "{{ event }}", "float32", "<f8", "|O"),
    *([], {}, [None], [[]], [0, -1], [2**62, 2**62], {"": None}, {"a": {"b": {"c": []}}}),
    *(["burgers", 3], {"$ref": "#"}, {"__prefect_kind": "json", "value": "{"}, DEEP),
)


def changed_values(content: bytes, chance: random.Random) -> bytes:
    """Return JSON with some values of another type, out of range, missing, renamed or nested."""
    whole = json.loads(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        whole = _changed(whole, chance)
    text = json.dumps(whole, ensure_ascii=chance.random() < 0.5)
    text = text.replace(f'"{DEEP}"', "[" * DEPTH + "]" * DEPTH)
    return text.encode("utf-8", "surrogatepass")


def _changed(value: Any, chance: random.Random) -> Any:
    """Return a value with one place in it changed, each as likely as every other."""
    places = list(_places(value))
    if not places or chance.random() < 0.02:
        return deepcopy(chance.choice(STRANGE))
    holder, key = chance.choice(places)
    _CHANGES[chance.randrange(len(_CHANGES))](holder, key, chance)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return all holders and keys, at any depth."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in list(items):
            yield value, key
            yield from _places(each)


def _replace(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = deepcopy(chance.choice(STRANGE))


def _remove(holder: Any, key: Any, chance: random.Random) -> None:
    del holder[key]


def _nest(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(([holder[key]], {"value": holder[key]}, str(holder[key])))


def _vary(holder: Any, key: Any, chance: random.Random) -> None:
    """Change a number or a word a little: what nearly fits is the hardest to refuse."""
    value = holder[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        holder[key] = chance.choice((-value, value + 1, value - 1, value * 1000, float(value)))
    elif isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        letter = chance.choice(("", "x", "\x00", "é", "/", value))
        holder[key] = value[:at] + letter + value[at + 1 :]
    elif isinstance(value, list):
        holder[key] = chance.choice((value * 2, value[::-1], value[:-1], value * 50))
    else:
        _replace(holder, key, chance)


def _rename(holder: Any, key: Any, chance: random.Random) -> None:
    """Give a value another's name, or one that is not known."""
    if isinstance(holder, dict):
        name = chance.choice((*map(str, holder), f"{key}x", "", "é", "\x00"))
        holder[name] = holder.pop(key)
    else:
        holder.append(holder[key])


_CHANGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    *(_replace, _replace, _replace, _remove, _nest, _vary, _vary, _rename),
)
