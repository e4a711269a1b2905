"""Predictions for files like those that a problem was brought in, written as the files came."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from flows.errors import BadInput
from flows.steps.data.declaration import Declaration, Declared
from flows.steps.data.file_arrays import FileSamples, Place, arrays_in, files_of
from flows.steps.data.given import record_of
from flows.steps.data.ingestion import sizes_of, stored_unit
from flows.steps.models.packaging import PackagedModel
from flows.steps.models.prediction import plain_opinions
from lsm_core.benchmarks.given import POSITIONS, GivenProblem
from lsm_core.problems.panel import Panel
from lsm_core.problems.variable import Variable
from lsm_core.reporting.figures import PanelOnMesh, panel_figure, showcase
from lsm_core.surrogates.trust import Opinion
from storage.fields.files import format_of, require_writable_kind, write_fields
from storage.fields.meshes import WRITABLE, mesh_polygons, write_mesh
from storage.fields.tables import write_with_columns
from storage.location import Location

Arrays = dict[str, NDArray[Any]]

AT_ONCE = 32
PREDICTED = "_predicted"
"""What a predicted field is called behind the name of what it predicts."""


def declaration_of(packaged: PackagedModel, root: Location) -> Declaration | None:
    """Return what files of a model's problem hold; None if that is not known here."""
    if not isinstance(packaged.benchmark, GivenProblem):
        return None
    try:
        text = record_of(packaged.benchmark.name, root)["declaration"]
    except (BadInput, KeyError):
        return None
    declaration = Declaration.from_plain(tomllib.loads(text))
    model = packaged.predictor.model
    known = {_stored(v) for v in declaration.variables if v.role != "volume"}
    return declaration if known == {v.name for v in (*model.inputs, *model.targets)} else None


def _stored(declared: Declared) -> str:
    return POSITIONS if declared.role == "position" else declared.name


def predict_files(
    packaged: PackagedModel, declaration: Declaration, source: Path, out: Path, plot: Path | None
) -> dict[str, Any]:
    """Predict for a file, or for all of a folder, and write each as it came, with fields added."""
    files = files_of([source])
    targets = _out_paths(files, source, out)
    job = _Job(packaged, declaration, files)
    by_file: dict[Path, list[_Sample]] = {}
    for sample in job.predicted():
        by_file.setdefault(sample.path, []).append(sample)
    for path, samples in by_file.items():
        job.write(path, targets[path], samples)
    if plot is not None:
        first = next(iter(by_file.values()))[0]
        Location.parse(str(plot)).write_bytes(job.picture(first).encode())
    errors = [each.error for samples in by_file.values() for each in samples]
    return {
        "model": packaged.facts["identity"],
        "samples": len(errors),
        "fields": str(out),
        "plot": str(plot) if plot else None,
        "vtk": [],
        "rel_l2": errors if all(error is not None for error in errors) else None,
        "trust": plain_opinions(packaged.trust, job.opinions),
        "numbers": [dict(each.numbers) for samples in by_file.values() for each in samples],
    }


def _out_paths(files: Sequence[Path], source: Path, out: Path) -> dict[Path, Path]:
    """Return where each file goes; BadInput for a name that nothing can be written under."""
    if len(files) == 1 and not source.is_dir() and not out.is_dir() and out.suffix:
        paths = {files[0]: out}
    else:
        if out.exists() and not out.is_dir():
            raise BadInput(f"{out} is a file, expected a folder for {len(files)} files")
        out.mkdir(parents=True, exist_ok=True)
        paths = {path: out / _file_name(path) for path in files}
    for path, to in paths.items():
        is_own = to.suffix.lower() == path.suffix.lower()
        if format_of(path).is_mesh:
            if to.suffix.lower() not in WRITABLE:
                raise BadInput(
                    f"{to} has the ending {to.suffix}, in which no mesh can be written; take one "
                    f"of {', '.join(WRITABLE)}"
                )
        elif not (is_own and (format_of(path).is_sample or to.suffix in (".pt", ".npy"))):
            require_writable_kind(to)
        if to.exists() and path.exists() and to.samefile(path):
            raise BadInput(f"{to} is the file that is read; give another name")
    return paths


def _file_name(path: Path) -> str:
    """Return what a file is called among those that are written."""
    if not format_of(path).is_mesh or path.suffix.lower() in WRITABLE:
        return path.name
    case = path.parent.parent.name if path.name == "controlDict" else path.name.partition(".")[0]
    return f"{case}.vtu"


@dataclass(frozen=True)
class _Sample:
    """What was predicted of one sample, in the units of its file."""

    path: Path
    row: int
    given: Arrays
    fields: Arrays
    error: float | None

    @property
    def numbers(self) -> Iterator[tuple[str, float]]:
        """Yield what is one number of the whole."""
        yield from ((n, float(v)) for n, v in self.fields.items() if v.ndim == 0)


class _Job:
    def __init__(
        self, packaged: PackagedModel, declaration: Declaration, files: Sequence[Path]
    ) -> None:
        self.packaged, self.declaration = packaged, declaration
        self.model = packaged.predictor.model
        self.declared = {_stored(v): v for v in declaration.variables}
        whole = files[:1] if declaration.each_file_is_a_sample else files
        held = {name for path in whole for name in arrays_in(path)}
        known = (*declaration.with_role("target"), *declaration.with_role("volume"))
        self.has_truth = all(name in held for v in known for name in v.arrays)
        left_out: tuple[Any, ...] = () if self.has_truth else ("target", "volume")
        self.samples = FileSamples(declaration, tuple(p.absolute() for p in files), left_out)
        self.opinions: list[Opinion | None] = []
        self.named = dict(zip(self.samples.files, files, strict=True))

    def predicted(self) -> Iterator[_Sample]:
        """Yield the samples of all files; those of one size are predicted together."""
        sized = ((place, sizes_of(self.samples, place)) for place in self.samples.places)
        for _, group in groupby(sized, key=lambda each: (each[0].file, sorted(each[1].items()))):
            waiting = list(group)
            for first in range(0, len(waiting), AT_ONCE):
                yield from self._together(waiting[first : first + AT_ONCE])

    def _together(self, sized: Sequence[tuple[Place, dict[str, int]]]) -> Iterator[_Sample]:
        given = [{v.name: self._values(v, *each) for v in self.model.inputs} for each in sized]
        arrays = {name: np.stack([each[name] for each in given]) for name in given[0]}
        try:
            predicted, opinion = self.packaged.predictor.with_opinion(arrays, self.packaged.trust)
            self.opinions.append(opinion)
        except ValueError as error:
            where = self.samples.files[sized[0][0].file].name
            raise BadInput(f"{where} does not suit the model: {error}") from error
        for number, (place, sizes) in enumerate(sized):
            stored = {name: values[number] for name, values in predicted.items()}
            target = self.declaration.with_role("target")[0]
            path = self.samples.path_of(
                self.declared[self.model.inputs[0].name], self._first_array(target), place
            )
            yield _Sample(
                path=self.named[path],
                row=place.row,
                given=given[number],
                fields={n: v * self.declared[n].factor for n, v in stored.items()},
                error=self._error(stored, place, sizes) if self.has_truth else None,
            )

    def _first_array(self, target: Declared) -> str:
        if self.declaration.each_file_is_a_sample:
            return target.arrays[0]
        with_samples = next(v for v in self.samples.variables if "sample" in v.whole_axes)
        return with_samples.arrays[0]

    def _values(self, variable: Variable, place: Place, sizes: dict[str, int]) -> NDArray[Any]:
        values = self.samples.read(self.declared[variable.name], place, sizes)
        pairs = zip(variable.dims, variable.shape, strict=True)
        return values.reshape(tuple(sizes.get(dim, n) for dim, n in pairs))

    def _error(self, stored: Arrays, place: Place, sizes: dict[str, int]) -> float:
        """Return the relative L2 error of a sample, where points count as they did in training."""
        volume = self.declaration.with_role("volume")
        weight = self.samples.read(volume[0], place, sizes) if volume else None
        n_points = int(np.prod([sizes[axis] for axis in self.model.space]))
        wrong = total = 0.0
        for variable in self.model.targets:
            truth = self._values(variable, place, sizes).astype(float)
            off = stored[variable.name] - truth
            if any(dim in self.model.space for dim in variable.dims):
                counts = np.ones(n_points) if weight is None else weight / weight.mean()
                own = counts.reshape(-1, 1)
                shape = (n_points, -1)
                wrong += float((own * off.reshape(shape) ** 2).sum())
                total += float((own * truth.reshape(shape) ** 2).sum())
            else:
                wrong += n_points * float((off**2).sum())
                total += n_points * float((truth**2).sum())
        return float(np.sqrt(wrong / total))

    def write(self, path: Path, to: Path, samples: Sequence[_Sample]) -> None:
        """Write a file as it came, with what was predicted of its samples."""
        kind = format_of(path)
        if kind.is_sample:
            fields = {f"{n}{PREDICTED}": v for n, v in samples[0].fields.items()}
            if kind.is_mesh:
                shaped = {
                    n: v.astype(np.float64).reshape(v.shape or (1,)) for n, v in fields.items()
                }
                write_mesh(path, to, shaped, self._places(fields))
            else:
                write_with_columns(path, to, fields)
            return
        order = sorted(samples, key=lambda each: each.row)
        predicted = {
            f"{n}{PREDICTED}": np.stack([each.fields[n] for each in order])
            for n in samples[0].fields
        }
        if to.suffix.lower() == ".npy":
            _write_npy(to, predicted)
            return
        held = {name: np.asarray(array[...]) for name, array in arrays_in(path).items()}
        held |= predicted
        if to.suffix == ".pt":
            _write_torch(to, held)
            return
        variables = {
            _plain(name): ([f"{_plain(name)}_{k}" for k in range(v.ndim)], v)
            for name, v in held.items()
        }
        write_fields(to, xr.Dataset(variables))

    def _places(self, fields: Mapping[str, NDArray[Any]]) -> dict[str, str]:
        positions = self.declaration.with_role("position")[0]
        stands = "cell" if positions.arrays[0].endswith("@cells") else "point"
        return {name: stands if values.ndim else "" for name, values in fields.items()}

    def picture(self, sample: _Sample) -> str:
        """Return one sample as SVG: on the cells of its mesh where it has one."""
        name = self.packaged.facts["model"]
        stored = {n: v / self.declared[n].factor for n, v in sample.fields.items()}
        place = next(p for p in self.samples.places if self._is_at(p, sample))
        sizes = sizes_of(self.samples, place)
        truth = dict(sample.given)
        if self.has_truth:
            truth |= {v.name: self._values(v, place, sizes) for v in self.model.targets}
        problem = self.packaged.benchmark
        last = [v for v in self.model.targets if self._is_field(v)][-1:] or self.model.targets[-1:]
        known = [v for v in self.model.inputs if v.name != POSITIONS and self._is_field(v)]
        drawn = {v.name: truth[v.name] for v in (*known, *(last if self.has_truth else ()))}
        drawn[PREDICTED] = stored[last[0].name]
        panels = self._panels(sample.path, drawn, {**truth, **stored}, problem)
        *given, predicted = panels
        if not self.has_truth:
            title = f"{last[0].name}, predicted by {name}"
            return panel_figure([[*given, replace(predicted, title=title)]])
        return showcase(given, {name: predicted})

    def _is_at(self, place: Place, sample: _Sample) -> bool:
        if self.declaration.each_file_is_a_sample:
            return self.named[self.samples.files[place.file]] == sample.path
        return place.row == sample.row

    def _is_field(self, variable: Variable) -> bool:
        return any(dim in self.model.space for dim in variable.dims)

    def _panels(self, path: Path, drawn: Arrays, whole: Arrays, problem: Any) -> list[Panel]:
        """Return panels of fields: on the cells of a mesh, or at points."""
        units = {
            v.name: stored_unit("1", 1.0) if v.unit == "1" else v.unit for v in self.model.targets
        }
        n_points = len(next(iter(drawn.values())))
        if format_of(path).is_mesh:
            fields = {n: np.asarray(v, dtype=np.float64) for n, v in drawn.items() if v.ndim}
            places = dict.fromkeys(
                fields, next(iter(self._places({"": np.zeros(n_points)}).values()))
            )
            polygons, values = mesh_polygons(path, fields, places)
            flat = (np.zeros(1), np.zeros(1))
            return [
                PanelOnMesh(
                    title=n.replace("_", " ").strip(),
                    positions=flat,
                    values=v,
                    unit=units.get(n, "1"),
                    polygons=tuple(polygons),
                )
                for n, v in values.items()
            ]
        *_, last = problem.panels(whole)
        shape = last.values.shape
        return [
            replace(last, title=n.replace("_", " ").strip(), values=_last_channel(v, shape))
            for n, v in drawn.items()
        ]


def _last_channel(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.asarray(values).reshape(*shape, -1)[..., -1]


def _plain(name: str) -> str:
    return name.replace("/", "_")


def _write_npy(to: Path, arrays: Arrays) -> None:
    """Write files of one array each, beside each other, by the names of the arrays."""
    import io

    for name, values in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, values)
        Location.parse(str(to.with_name(f"{name}.npy"))).write_bytes(buffer.getvalue())


def _write_torch(to: Path, arrays: Arrays) -> None:
    """Write plain tensors by name."""
    import io

    import torch

    buffer = io.BytesIO()
    torch.save({name: torch.from_numpy(np.array(v)) for name, v in arrays.items()}, buffer)
    Location.parse(str(to)).write_bytes(buffer.getvalue())
