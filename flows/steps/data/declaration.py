"""What files of one's own hold, said in a small file or by flags.

    declaration = read_declaration(Path("blocks.toml"))     or flows.steps.data.guessing
    print(declaration.to_toml())                            the same again

A declaration names the variables of a problem, where each lies in the files and along which axes:
`sample`, the axes of space, `time`, `component`. Two axes that a file stores as one are written
with a dot between them, the slower first: `component.point`.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from flows.errors import BadInput
from lsm_core.configuration import from_plain
from lsm_core.names import OWN_NAME, BenchmarkName

Part = Literal["position", "input", "target", "volume"]
Geometry = Literal["grid", "mesh", "points"]

SAMPLE, TIME, COMPONENT, POINT = "sample", "time", "component", "point"
GRID_AXES = ("x", "y", "z")
FRAMES = re.compile(r"^-?\d*(:-?\d*)?$")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One variable of a problem, and where it lies in the files."""

    name: str
    role: Part
    arrays: tuple[str, ...]
    """Its name in the files; several are the components of one variable."""
    axes: tuple[str, ...]
    """Of the array in a file; without `sample` it is the same for all samples."""
    unit: str = "1"
    frames: str = ""
    """Which frames of the axis `time` are taken, as Python slices: `0:1`, `1:`; all if empty."""
    factor: float = 1.0
    """What values are divided by before they are stored; predictions are multiplied by it."""

    def __post_init__(self) -> None:
        if not FRAMES.match(self.frames):
            raise ValueError(f"frames of {self.name} are like 0:1 or 1:, got {self.frames!r}")
        if not self.factor > 0:
            raise ValueError(f"the factor of {self.name} is {self.factor}, expected above 0")
        if self.frames and TIME not in self.whole_axes:
            raise ValueError(f"{self.name} has no axis time of which {self.frames} could be taken")

    @property
    def whole_axes(self) -> tuple[str, ...]:
        """Return the axes with those apart that a file stores as one."""
        return tuple(part for axis in self.axes for part in axis.split("."))

    @property
    def window(self) -> slice:
        """Return which frames are taken."""
        if not self.frames:
            return slice(None)
        first, colon, last = self.frames.partition(":")
        start = int(first) if first else None
        if not colon:
            return slice(start, (start or 0) + 1 or None)
        return slice(start, int(last) if last else None)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Which samples are trained on, validated and tested.

    By number, in a fixed random order of all samples or, with `in_order`, in that of the files; by
    `file`, whose names say train, valid or test; or by a `column` of 0, 1 and 2.
    """

    by: Literal["number", "file", "column"] = "number"
    train: float = 0.8
    validation: float = 0.1
    test: float = 0.1
    """Parts of all samples, or numbers of them."""
    in_order: bool = False
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A problem that files hold."""

    name: str
    title: str = ""
    geometry: Geometry
    periodic: bool = False
    rollout: bool = False
    """Whether frames are predicted one from those before, or all at once."""
    each_file_is_a_sample: bool = False
    duplicates: bool = False
    """Whether a sample may be there twice."""
    splits: Splits = Splits()
    variables: tuple[Declared, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.with_role("target"):
            raise ValueError("no variable is a target; say what is to be predicted")
        if not self.with_role("input") and not self.with_role("position"):
            raise ValueError("no variable is an input; say what predictions are made from")
        if self.geometry != "grid" and len(self.with_role("position")) != 1:
            raise ValueError(f"{self.geometry} need one variable of positions")
        if self.rollout and (len(self.with_role("input")), len(self.with_role("target"))) != (1, 1):
            raise ValueError("a rollout has one input, the frames so far, and one target")
        names = [variable.name for variable in self.variables]
        if len(set(names)) != len(names):
            raise ValueError(f"two variables have the same name among {', '.join(names)}")

    def with_role(self, role: Part) -> tuple[Declared, ...]:
        """Return the variables of one role."""
        return tuple(variable for variable in self.variables if variable.role == role)

    @property
    def space(self) -> tuple[str, ...]:
        """Return the axes of space, in their order; of a grid those that the first field has."""
        if self.geometry == "points":
            return (POINT,)
        found = {axis for v in self.variables for axis in v.whole_axes}
        return tuple(axis for axis in GRID_AXES if axis in found)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        from dataclasses import asdict

        return dict(json.loads(json.dumps(asdict(self))))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Declaration":
        """Return what a file or a flow says; BadInput if it makes no sense."""
        try:
            known = {field.name for field in fields(cls)}
            if unknown := sorted(set(plain) - known):
                raise ValueError(f"there is no setting {unknown[0]}; known are {sorted(known)}")
            variables = tuple(_filled(Declared, each) for each in plain.get("variables", ()))
            splits = _filled(Splits, plain.get("splits", {}))
            return _filled(cls, {**plain, "variables": variables, "splits": splits})
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"the declaration cannot be used: {error}") from error

    def to_toml(self) -> str:
        """Return the file that says the same."""
        plain = self.to_plain()
        variables, splits = plain.pop("variables"), plain.pop("splits")
        lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
        lines += [
            "",
            "[splits]",
            *(f"{key} = {json.dumps(value)}" for key, value in splits.items()),
        ]
        for variable in variables:
            lines += ["", "[[variables]]"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in variable.items()]
        return "\n".join(lines) + "\n"


def _filled(kind: Any, values: Any) -> Any:
    """Return a dataclass of some values, the others as they are by default."""
    from dataclasses import MISSING

    if not isinstance(values, Mapping):
        raise ValueError(f"{kind.__name__} needs settings by name, got {values!r}")
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    return from_plain(kind, {**defaults, **values})


def read_declaration(path: Path) -> Declaration:
    """Return the declaration in a TOML file."""
    try:
        return Declaration.from_plain(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no TOML file: {error}") from error


def check_name(name: str) -> None:
    """Raise a ValueError unless a problem may have this name."""
    if not re.match(OWN_NAME, name):
        raise ValueError(
            f"a problem cannot be called {name!r}: two to 48 small letters, digits, dashes and "
            "underscores, a letter first"
        )
    if name in get_args(BenchmarkName):
        raise ValueError(f"{name} is a benchmark; choose another name for data of your own")
