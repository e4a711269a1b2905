"""What is asked of a model, looked over before the model is loaded: a refusal comes at once."""

from pathlib import Path

import numpy as np

from flows.errors import BadInput
from flows.steps.models.shipped import shipped_card, shipped_names
from storage.fields.files import FieldFileInvalid, read_fields, variable_names
from storage.location import Location
from storage.tracking.model_state import is_reference


def require_answerable(model: str, source: Path | None, root: Location) -> None:
    """Raise BadInput for a model that is none, or a file that it can make nothing of."""
    _require_model(model, root)
    if source is None:
        return
    if source.is_dir() and source.suffix != ".zarr":
        return  # a folder of files, which only the model's own problem knows how to read
    try:
        held = variable_names(source)
        if model not in shipped_names():
            return
        inputs = shipped_card(model)["trained_model"]["inputs"]
        for variable in inputs:
            _require_values(source, model, variable, held)
    except FieldFileInvalid as error:
        raise BadInput(str(error)) from error


def _require_values(source: Path, model: str, variable: dict[str, object], held: list[str]) -> None:
    name, dims = str(variable["name"]), tuple(map(str, variable["dims"]))  # type: ignore[call-overload]
    told = f"{source} does not suit the model {model}"
    if name not in held:
        raise BadInput(f"{told}: there is no variable {name}, it holds {', '.join(held) or 'none'}")
    values = read_fields(source, [name])[name]
    if values.dtype.kind not in "fiub":
        raise BadInput(f"{told}: {name} is of type {values.dtype}, expected real numbers")
    if values.ndim not in (len(dims), len(dims) + 1):
        raise BadInput(
            f"{told}: {name} has {values.ndim} axes, expected {1 + len(dims)}: "
            f"sample x {' x '.join(dims)}"
        )
    n_wrong = int((~np.isfinite(values)).sum())
    if n_wrong:
        raise BadInput(f"{told}: {name} has {n_wrong} values of NaN or infinity, expected numbers")


def _require_model(model: str, root: Location) -> None:
    if model in shipped_names() or is_reference(model) or (Path(model) / "MLmodel").is_file():
        return
    run_named(model, root)


def run_named(text: str, root: Location) -> str:
    """Return the identity of the one run that begins with a text; BadInput if there is not one."""
    found = [name for name in (root / "checkpoints").names() if text and name.startswith(text)]
    if len(found) == 1:
        return found[0]
    why = f"{len(found)} runs begin with it" if found else "it is none of these"
    shipped = ", ".join(shipped_names())
    raise BadInput(
        f"{text!r} names no model, {why}: a run in {root}, a registered model like "
        "pde-darcy@champion, a model folder"
        + (f", or one that comes with the project: {shipped}" if shipped else "")
    )
