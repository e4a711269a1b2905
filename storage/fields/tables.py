"""Tables of numbers in text: CSV with a line of names, and COMSOL's export."""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from storage.fields.array import FieldArray
from storage.location import whole_or_nothing

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Callable[[], FieldArray]]

HEAD_BYTES = 2**16
SEPARATORS = (";", ",", "\t")
UNIT = re.compile(r"^(?P<name>.*?)\s*[\[(](?P<unit>[^\])]*)[\])]\s*$")


def csv_arrays(path: Path) -> Arrays:
    """Return the columns of a table that has a line of names; words in a column leave it out.

    A unit may stand behind a name, as in `p [Pa]`.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline(HEAD_BYTES)
        separator = max(SEPARATORS, key=first.count)
        names = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
        if len(set(names)) != len(names) or not all(names) or _number(names[0]) is not None:
            raise ValueError(
                f"it begins with {first.strip()[:40]!r}, expected a line of different names"
            )
        rows = list(csv.reader(file, delimiter=separator))
    if any(len(row) != len(names) for row in rows):
        number = next(n for n, row in enumerate(rows, start=2) if len(row) != len(names))
        raise ValueError(f"line {number} has not the {len(names)} columns of the first")
    found: Arrays = {}
    for name, column in zip(names, zip(*rows, strict=True), strict=False):
        numbers = [_number(text) for text in column]
        if None not in numbers:
            found[_name(name)] = _held(np.array(numbers, dtype=np.float64), _unit(name))
    return found


def comsol_arrays(path: Path) -> Arrays:
    """Return the columns of COMSOL's text export, or of any columns of numbers under names.

    The last line that begins with % names the columns. An expression at several times or
    parameters (`u @ t=0.1`) is one array, with a column for each.
    """
    names: list[str] = []
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if not line.startswith("%"):
                break
            names = _comsol_names(line[1:])
        else:
            line = ""
        rows = [line.split(), *(each.split() for each in file if not each.startswith("%"))]
    rows = [row for row in rows if row]
    if not names or not rows:
        raise ValueError("it has no line that begins with % and names columns of numbers")
    if any(len(row) != len(names) for row in rows):
        number = next(n for n, row in enumerate(rows, start=1) if len(row) != len(names))
        raise ValueError(f"row {number} has not the {len(names)} columns that are named")
    values = np.array([[float(text) for text in row] for row in rows])
    columns: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        columns.setdefault(name.partition("@")[0].strip(), []).append(number)
    return {
        _name(name): _held(values[:, own[0]] if len(own) == 1 else values[:, own], _unit(name))
        for name, own in columns.items()
    }


def write_with_columns(source: Path, to: Path, fields: Mapping[str, Array]) -> None:
    """Write a table as it is with columns added, whole or not at all; a number fills its column.

    A field of several components has a column for each, with its number behind the name.
    """
    with source.open(encoding="utf-8-sig", newline="") as file:
        lines = file.read().splitlines()
    is_csv = source.suffix.lower() == ".csv"
    separator = max(SEPARATORS, key=lines[0].count) if is_csv else "  "
    heads = [n for n, line in enumerate(lines) if line.startswith("%")]
    head = 0 if is_csv else heads[-1]
    rows = [n for n, line in enumerate(lines) if line.strip() and n != head and n not in heads]
    for name, values in fields.items():
        columns = np.broadcast_to(values, (len(rows),)) if values.ndim == 0 else values
        for number, column in enumerate(columns.reshape(len(rows), -1).T):
            several = columns.ndim > 1 and columns.shape[1] > 1
            lines[head] += f"{separator}{name}{f'_{number}' if several else ''}"
            for row, value in zip(rows, column, strict=True):
                lines[row] += f"{separator}{float(value):.9g}"
    with whole_or_nothing(to) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _comsol_names(line: str) -> list[str]:
    """Return the names of columns, which are two spaces apart or more, or one."""
    apart = re.split(r"\s{2,}|\t", line.strip())
    joined = re.sub(r"\s*@\s*", "@", line.strip())
    single = [each for each in re.split(r"\s+(?![(\[])", joined) if each]
    return apart if len(apart) > 1 else single


def _held(values: Array, unit: str) -> Callable[[], FieldArray]:
    return lambda: FieldArray(values.shape, values.dtype, lambda index: values[index], unit=unit)


def _name(text: str) -> str:
    found = UNIT.match(text)
    return found["name"] if found and found["name"] else text


def _unit(text: str) -> str:
    found = UNIT.match(text)
    return found["unit"] if found and found["name"] else ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
