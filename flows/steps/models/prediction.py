"""Predictions for fields in a file, with a picture and VTK files if they are asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.errors import BadInput
from flows.steps.models.packaging import (
    PackagedModel,
    TrainedRun,
    open_package,
    registered_model,
    trained_run,
)
from flows.steps.models.request import run_named
from flows.steps.models.shipped import open_shipped, shipped_names
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.given import GivenProblem
from lsm_core.benchmarks.variations import KNOBS, hidden_changes
from lsm_core.names import MODEL_TITLES
from lsm_core.problems.panel import Panel
from lsm_core.surrogates.predictor import TrainedModel
from lsm_core.surrogates.trust import Opinion, Trust
from storage.errors import NoSuchModel
from storage.fields.files import (
    FieldFileInvalid,
    format_of,
    read_fields,
    require_writable_kind,
    said_numbers,
    variable_names,
    write_arrays,
    write_fields,
)
from storage.fields.vtk import write_vtk
from storage.location import Location
from storage.tracking.model_state import is_reference

Arrays = dict[str, NDArray[Any]]

DRAWN_SAMPLES = 3
LENGTHS = ("m", "mm")


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where predictions go: the file of fields, and a picture and VTK files if they are wanted."""

    fields: Path
    plot: Path | None = None
    vtk: Path | None = None

    def require_pictures(self) -> None:
        """Raise BadInput for a picture of another kind, before any work is done."""
        for path, ending in ((self.plot, ".svg"), (self.vtk, ".vtk")):
            if path is not None and path.suffix != ending:
                raise BadInput(f"{path} has the ending {path.suffix!r}, expected {ending}")


def predict_file(
    model: str, source: Path, outputs: Outputs, root: Location, tracking_uri: str
) -> dict[str, Any]:
    """Predict for the inputs of a file and return what was done, as plain data.

    `model` is the identity of a run or the beginning of one, a registered model such as
    `pde-darcy@champion`, or a model folder. Where the file has the true targets, too, the
    relative error of every sample is told, and where it says a parameter that the model was trained
    at another value of, that as a reason not to trust it. Files like those that a problem was
    brought in, or a folder of them, are written as they came, with fields added.
    """
    try:
        outputs.require_pictures()
        is_as_it_came = source.suffix in ("", outputs.fields.suffix)
        if not is_as_it_came and not format_of(source).is_mesh:  # those know what they become
            require_writable_kind(outputs.fields)
        packaged = find_model(model, root, tracking_uri)
        if outputs.vtk is None and isinstance(packaged.benchmark, GivenProblem):
            from flows.steps.models.own_files import declaration_of, predict_files

            if (declaration := declaration_of(packaged, root)) is not None:
                return predict_files(packaged, declaration, source, outputs.fields, outputs.plot)
        require_writable_kind(outputs.fields)
        given = _given(source, packaged.predictor.model)
        predicted, opinion = packaged.predictor.with_opinion(given, packaged.trust)
        reasons = _hidden_changes(packaged.benchmark, source)
        if opinion is not None and reasons:
            opinion = replace(opinion, is_strange=np.ones_like(opinion.is_strange))
        prediction = _Prediction(packaged, given, predicted, opinion)
        prediction.write_fields(outputs.fields, model)
    except (FieldFileInvalid, NoSuchModel) as error:
        raise BadInput(str(error)) from error
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{source} does not suit the model {model}: {error}") from error
    if outputs.plot is not None:
        Location.parse(str(outputs.plot)).write_bytes(prediction.picture().encode())
    return {
        "model": packaged.facts["identity"],
        "samples": prediction.n_samples,
        "grid": prediction.grid,
        "fields": str(outputs.fields),
        "plot": str(outputs.plot) if outputs.plot else None,
        "vtk": [str(path) for path in prediction.write_vtk(outputs.vtk)] if outputs.vtk else [],
        "rel_l2": prediction.errors,
        "trust": prediction.trust,
        "reasons": reasons,
    }


def find_model(text: str, root: Location, tracking_uri: str) -> PackagedModel:
    """Return the model that a run's identity, a registered name or a folder names."""
    if text in shipped_names():
        return open_shipped(text)
    if is_reference(text):
        from storage.tracking.registry import ModelRegistry  # with MLflow, which takes seconds

        registry = ModelRegistry(tracking_uri, root)
        found = registered_model(registry, registry.find(text))
        return _calibrated(found, root) if isinstance(found, TrainedRun) else found
    if (Path(text) / "MLmodel").is_file():
        return open_package(Path(text))
    return _calibrated(trained_run(run_named(text, root), root), root)


def _calibrated(run: TrainedRun, root: Location) -> TrainedRun:
    if run.trust is not None:
        return run
    from flows.steps.models.trust import with_trust  # with what reads datasets

    return with_trust(run, root)


def _given(source: Path, model: TrainedModel) -> Arrays:
    """Return inputs, and targets if all are there, with a sample axis in front."""
    inputs, targets = ([v.name for v in part] for part in (model.inputs, model.targets))
    held = variable_names(source)
    has_truth = all(name in held for name in targets)
    arrays = read_fields(source, [*inputs, *(targets if has_truth else [])])
    n_axes = {v.name: len(v.dims) for v in (*model.inputs, *model.targets)}
    if all(values.ndim == n_axes[name] for name, values in arrays.items()):
        return {name: values[None] for name, values in arrays.items()}
    return arrays


def _hidden_changes(trained: Benchmark, source: Path) -> list[str]:
    """Return what a file says of itself that sets it apart and that no model sees."""
    names = [knob.name for knob in KNOBS.get(trained.name, ()) if not knob.shows]
    return hidden_changes(trained, said_numbers(source, names)) if names else []


def _errors(given: Arrays, predicted: Arrays) -> list[float] | None:
    """Return the relative L2 error of every sample, or None if the truth is not known."""
    if not all(given.get(name, np.empty(0)).shape == v.shape for name, v in predicted.items()):
        return None

    def flat(arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(
            [arrays[name].reshape(len(v), -1) for name, v in predicted.items()], 1
        )

    truth = flat(given)
    errors = np.linalg.norm(flat(predicted) - truth, axis=1) / np.linalg.norm(truth, axis=1)
    return [float(error) for error in errors]


def plain_opinions(
    trust: Trust | None, opinions: Sequence[Opinion | None]
) -> dict[str, Any] | None:
    """Return what is thought of every sample, as plain data; None if nothing can be said."""
    known = [each for each in opinions if each is not None]
    if trust is None or not known or len(known) < len(opinions):
        return None
    return {
        "expected_error": [float(e) for each in known for e in each.expected_error],
        "coverage": trust.coverage,
        "is_strange": [bool(s) for each in known for s in each.is_strange],
        "strangeness": [float(s) for each in known for s in each.strangeness],
        "false_alarms": trust.false_alarms,
    }


class _Prediction:
    """What a model made of the samples of a file: as fields, as a picture and as meshes."""

    def __init__(
        self, packaged: PackagedModel, given: Arrays, predicted: Arrays, opinion: Opinion | None
    ) -> None:
        self.packaged, self.given, self.predicted = packaged, given, predicted
        self.opinion = opinion
        model = packaged.predictor.model
        self.n_samples = len(predicted[model.targets[0].name])
        self.sizes = {
            dim: size
            for v in model.targets
            for dim, size in zip(v.dims, predicted[v.name].shape[1:], strict=True)
        }
        self.grid = {axis: self.sizes[axis] for axis in model.space}
        self.model = model.at(self.grid)
        self.errors = _errors(given, predicted)
        self.length_unit = next(
            (v.unit for v in packaged.benchmark.variables if v.unit in LENGTHS), "1"
        )

    @property
    def trust(self) -> dict[str, Any] | None:
        """Return what is thought of every sample, as plain data; None if nothing can be said."""
        return plain_opinions(self.packaged.trust, [self.opinion])

    @cached_property
    def benchmark(self) -> Benchmark | None:
        """Return the benchmark on the grid of the samples, or None if it has no such grid."""
        if self.grid == self.packaged.predictor.model.grid:
            return self.packaged.benchmark
        try:
            moved = self.packaged.benchmark.at_resolution(next(iter(self.grid.values())))
        except ValueError:
            return None
        return moved if moved.shape.space == tuple(self.grid.values()) else None

    def write_fields(self, target: Path, model: str) -> None:
        """Write what was predicted, with all that is known of it; `model` is what was asked for."""
        if target.suffix == ".npz":
            write_arrays(target, {**self.predicted, **self._thought(), **self._coordinates()})
            return
        import xarray as xr  # with pandas, which takes a second

        variables = {
            v.name: xr.DataArray(
                self.predicted[v.name],
                dims=("sample", *v.dims),
                attrs={
                    "units": v.unit,
                    "long_name": f"{v.description}, predicted" if v.description else "predicted",
                },
            )
            for v in self.model.targets
        }
        variables |= {n: xr.DataArray(v, dims="sample") for n, v in self._thought().items()}
        facts = {k: str(v) for k, v in self.packaged.facts.items() if k != "test"}
        if self.packaged.trust is not None:
            facts["coverage"] = f"{self.packaged.trust.coverage:.3g}"
        attributes = {"model": model, **facts}
        write_fields(target, xr.Dataset(variables, coords=self._coordinates(), attrs=attributes))

    def _thought(self) -> Arrays:
        """Return the expected error of every sample and whether its input is strange."""
        if self.opinion is None:
            return {}
        return {
            "expected_error": self.opinion.expected_error.astype(np.float32),
            "is_strange": self.opinion.is_strange.astype(np.uint8),
        }

    def _coordinates(self) -> Arrays:
        known = self.benchmark.coordinates if self.benchmark is not None else {}
        return {axis: x for axis, x in known.items() if self.sizes.get(axis) == len(x)}

    def picture(self) -> str:
        """Return the first samples, as SVG: the first beside its truth where that is known."""
        from lsm_core.reporting.figures import panel_figure, showcase  # with matplotlib

        model = self.packaged.facts["model"]
        name = MODEL_TITLES.get(model, model)
        if self.errors is not None:
            truth = self._panels({n: values[0] for n, values in self.given.items()})
            return showcase(truth, {name: self._panels(self._sample(0))[-1]}, self.length_unit)
        samples = []
        for number in range(min(DRAWN_SAMPLES, self.n_samples)):
            *inputs, last = self._panels(self._sample(number))
            samples.append([*inputs, replace(last, title=f"{last.title}, predicted by {name}")])
        return panel_figure(samples, self.length_unit)

    def write_vtk(self, path: Path) -> list[Path]:
        """Write one file a sample and frame and return their paths."""
        n_frames = self.grid.get("time", 1)
        width = len(str(self.n_samples - 1)), len(str(n_frames - 1))
        written = []
        for number in range(self.n_samples):
            for frame, (positions, fields) in enumerate(self._frames(number)):
                sample = f"_sample{number:0{width[0]}d}" if self.n_samples > 1 else ""
                time = f"_{frame:0{width[1]}d}" if n_frames > 1 else ""
                place = path.with_name(f"{path.stem}{sample}{time}{path.suffix}")
                write_vtk(place, positions, fields, f"{self.model.benchmark} by lsm")
                written.append(place)
        return written

    def _frames(self, number: int) -> Iterator[tuple[tuple[NDArray[Any], ...], Arrays]]:
        """Yield positions and fields of one sample: once, or for every frame if time is an axis.

        The mesh of a frame is the one that the picture of the sample up to that frame shows.
        """
        sample = self._sample(number)
        variables = (*self.model.inputs, *self.model.targets)
        time = {v.name: v.dims.index("time") for v in variables if "time" in v.dims}
        for frame in range(self.grid.get("time", 1)):
            until, at_frame = dict(sample), dict(sample)
            for name, axis in time.items():
                until[name] = sample[name].take(range(frame + 1), axis)
                at_frame[name] = sample[name].take(frame, axis)
            positions = self._panels(until)[-1].positions
            shape = positions[0].shape
            yield positions, {n: v for n, v in at_frame.items() if v.shape[: len(shape)] == shape}

    def _sample(self, number: int) -> Arrays:
        return {name: v[number] for name, v in {**self.given, **self.predicted}.items()}

    def _panels(self, sample: Arrays) -> list[Panel]:
        """Return what to draw of a sample, also on a grid that its benchmark does not have."""
        try:
            # Where positions are part of the sample, any benchmark of the kind knows them.
            return (self.benchmark or self.packaged.benchmark).panels(sample)
        except (ValueError, KeyError) as error:
            if len(self.grid) > 2:
                raise BadInput(
                    f"{self.model.benchmark} on {' x '.join(map(str, self.grid.values()))} points "
                    "cannot be drawn, its positions are not known; predict on the grid of training"
                ) from error
        self.length_unit = "1"  # these are not positions, but parts of each side
        axes = np.meshgrid(*(np.linspace(0, 1, n) for n in self.grid.values()), indexing="ij")
        return [
            Panel(
                title=v.name.replace("_", " "),
                positions=tuple(axes),
                values=sample[v.name].reshape(*axes[0].shape, -1)[..., -1],
                unit=v.unit,
            )
            for v in (*self.model.inputs, *self.model.targets)
        ]
