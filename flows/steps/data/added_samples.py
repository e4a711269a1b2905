"""Samples that no seed makes: of files in a watched folder, or of a converted dataset.

    intake = take_in(folder, benchmark, root)      whole files go into the store, each content once
    added = take_dataset(dataset, benchmark, root) the training samples of a dataset do
    arrays = given_samples(plan, root, block)      what a dataset takes of them
    arrays = held_out(added, benchmark, root)      what no model is trained on: every fifth

A file is of one of the formats in `storage.fields.files`, with the inputs and targets of the
problem under their names, samples first, on the problem's own grid; of a problem that was brought,
it is as the files were that it came in. It is left where it is; what
the store has of it is named by the hash of its content: first the samples to train on, `n_samples`
of them, then those that are held out. (Of files that came before any were, all are trained on.)
"""

import hashlib
import io
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.data.declaration import Declaration
from flows.steps.data.file_arrays import FileSamples, digest_of_file, files_of
from flows.steps.data.given import record_of
from flows.steps.data.ingestion import read_sample
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.given import WEIGHT, GivenProblem
from lsm_core.evaluation.new_data import Profile, profile_of, require_plausible, shift_from
from lsm_core.experiments.plans import AddedSamples, ConvertedPlan, DataPlan, ExtendedPlan
from lsm_core.problems.variable import Variable
from storage.datasets.reader import Dataset, open_dataset
from storage.errors import StorageError
from storage.fields.files import FORMATS, read_fields
from storage.fields.meshes import companions
from storage.location import Location

OF_SAMPLES = [ending for ending, each in FORMATS.items() if not each.is_sample]
"""What files with many samples end in; a text may be anything, such as somebody's notes."""
SETTLED_SECONDS = 30.0
"""For how long a file must not have changed: a copy that still grows is left for the next time."""

HELD_OUT = 5
"""Every so-manyth sample is held out."""
PROFILED = 200
"""So many training samples tell what the others look like."""

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Intake:
    """What a watched folder held: samples that the store now has, and files left, with reasons."""

    taken: tuple[AddedSamples, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


def take_in(
    folder: Path,
    benchmark: Benchmark,
    root: Location,
    known: Profile | None = None,
    settled: float = SETTLED_SECONDS,
) -> Intake:
    """Bring the whole files of a folder into the store, and return what each held.

    Two files of one content count once. A file that changes, cannot be read, does not suit the
    problem or has values unlike any that are `known` is left, with the reason; it is looked at
    again the next time.
    """
    if not folder.is_dir():
        raise BadInput(f"the watched folder {folder} is not there; make it, or name another one")
    taken: dict[str, AddedSamples] = {}
    left = {}
    read = _reader_of(benchmark, root)
    for path in _waiting(folder, benchmark):
        try:
            found = _take(path, benchmark, root, known or {}, settled, read)
            taken.setdefault(found.digest, found)
        except (StorageError, ValueError, OSError) as error:
            left[path.name] = str(error)
    return Intake(tuple(taken.values()), left)


def _waiting(folder: Path, benchmark: Benchmark) -> list[Path]:
    """Return the files of a folder that may hold samples of a problem."""
    if isinstance(benchmark, GivenProblem):
        with suppress(BadInput):  # nothing there yet
            return list(files_of([folder]))
    inside = sorted(folder.iterdir())
    return [p for p in inside if p.suffix in OF_SAMPLES and not p.name.startswith(".")]


def _reader_of(benchmark: Benchmark, root: Location) -> Callable[[Path], Arrays]:
    """Return what reads the samples of a file: as it was declared, or by the variables' names."""
    if isinstance(benchmark, GivenProblem):
        text = record_of(benchmark.name, root).get("declaration")
        if text:
            return partial(
                _declared_samples, Declaration.from_plain(tomllib.loads(text)), benchmark
            )
    return lambda path: read_fields(path, _names(benchmark))


def _declared_samples(declaration: Declaration, problem: GivenProblem, path: Path) -> Arrays:
    """Return the samples of a file that is like those in which a problem was brought."""
    samples = FileSamples(declaration, (path.absolute(),))
    found = [read_sample(samples, problem, place) for place in samples.places]
    return {name: np.stack([each[name] for each in found]) for name in _names(problem)}


def take_dataset(
    dataset: Dataset, benchmark: Benchmark, root: Location, known: Profile | None = None
) -> AddedSamples:
    """Keep the training samples of a dataset, and return what they are called.

    ValueError if they do not suit the problem, or are unlike any that are `known`.
    """
    digest = hashlib.sha256(dataset.digest.encode()).hexdigest()
    place = _place(root, benchmark, digest)
    if not place.exists():
        arrays = _checked(dataset.part("train", _names(benchmark))[:], benchmark)
        require_plausible(known or {}, arrays)
        _keep(place, arrays)
    return _named(digest, dataset.attributes["split_sizes"]["train"])


def training_profile(dataset: Dataset, benchmark: Benchmark) -> Profile:
    """Return what the training samples of a dataset look like, by variable."""
    names = [name for name in _names(benchmark) if name != WEIGHT]
    return profile_of(dataset.part("train", names)[:PROFILED])


def shift_of(
    added: Sequence[AddedSamples], benchmark: Benchmark, root: Location, known: Profile
) -> str:
    """Return in a sentence how unlike known samples added ones are; nothing if they are like."""
    return shift_from(known, _joined(added, benchmark, root, slice(None))) if added else ""


def inputs_of(added: Sequence[AddedSamples], benchmark: Benchmark, root: Location) -> Arrays:
    """Return the inputs of added samples."""
    joined = _joined(added, benchmark, root, slice(None))
    return {v.name: joined[v.name] for v in benchmark.with_role("input")}


def held_out(added: Sequence[AddedSamples], benchmark: Benchmark, root: Location) -> Arrays:
    """Return inputs and targets of those added samples that no model is trained on."""
    parts = [_joined([each], benchmark, root, slice(each.n_samples, None)) for each in added]
    empty = {v.name: np.empty((0, *v.shape), np.float32) for v in _needed(benchmark)}
    return {n: np.concatenate([e, *(part[n] for part in parts)]) for n, e in empty.items()}


def _joined(
    added: Sequence[AddedSamples], benchmark: Benchmark, root: Location, rows: slice
) -> Arrays:
    files = [_read(_place(root, benchmark, each.digest)) for each in added]
    return {n: np.concatenate([file[n][rows] for file in files]) for n in _names(benchmark)}


def is_kept(added: AddedSamples, benchmark: Benchmark, root: Location) -> bool:
    """Return whether the store still has the samples of a file."""
    return _place(root, benchmark, added.digest).exists()


def given_samples(plan: DataPlan, root: Location, block: range) -> dict[int, Arrays]:
    """Return those samples of a block that no seed makes, by their numbers.

    They are of added files, and of the official files that stand for the seeds of a plan. What is
    not known of them is NaN, and their seed -1.
    """
    if not isinstance(plan, ExtendedPlan):
        return {}
    files: dict[str, Arrays] = {}
    samples = {} if plan.official is None else _official_samples(plan, plan.official, root, block)
    for sample, digest, index in plan.added_among(block):
        if digest not in files:
            files[digest] = _read(_place(root, plan.benchmark, digest))
        samples[sample] = _completed(files[digest], index, plan.benchmark)
    return samples


def _official_samples(
    plan: ExtendedPlan, official: ConvertedPlan, root: Location, block: range
) -> dict[int, Arrays]:
    """Copy samples of a block from the dataset into which official files were converted."""
    dataset = open_dataset(root / "datasets" / plan.benchmark.name / official.dataset)
    names = _names(plan.benchmark)
    samples, first = {}, 0
    for split, size in plan.split_sizes.items():
        start = max(block.start, first)
        stop = min(block.stop, first + official.split_sizes[split])
        if start < stop:
            arrays = dataset.part(split, names)[start - first : stop - first]
            for sample in range(start, stop):
                samples[sample] = _completed(arrays, sample - start, plan.benchmark)
        first += size
    return samples


def _take(
    path: Path,
    benchmark: Benchmark,
    root: Location,
    known: Profile,
    settled: float,
    read: Callable[[Path], Arrays],
) -> AddedSamples:
    age = time.time() - _changed(path)
    if age < settled:
        raise ValueError(f"it changed {age:.0f} s ago and may not be whole; {settled:.0f} s decide")
    digest = _digest(path)
    place = _place(root, benchmark, digest)
    if place.exists():
        return _named(digest, len(next(iter(_read(place).values()))))
    arrays = _checked(read(path), benchmark)
    require_plausible(known, arrays)
    if _digest(path) != digest:
        raise ValueError("it changed while it was read")
    _keep(place, arrays)
    return _named(digest, len(next(iter(arrays.values()))))


def _named(digest: str, n_samples: int) -> AddedSamples:
    if n_samples == 1:  # of files with one sample each, every fifth file is held out
        return AddedSamples(digest=digest, n_samples=int(int(digest[:8], 16) % HELD_OUT > 0))
    return AddedSamples(digest=digest, n_samples=n_samples - n_samples // HELD_OUT)


def _keep(place: Location, arrays: Arrays) -> None:
    """Write samples to train on first, then every fifth, which is held out."""
    numbers = np.arange(len(next(iter(arrays.values()))))
    is_held = numbers % HELD_OUT == HELD_OUT - 1
    order = np.concatenate([numbers[~is_held], numbers[is_held]])
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: v[order] for name, v in arrays.items()})
    place.write_bytes(buffer.getvalue())


def _names(benchmark: Benchmark) -> list[str]:
    return [variable.name for variable in _needed(benchmark)]


def _needed(benchmark: Benchmark) -> tuple[Variable, ...]:
    weight = tuple(v for v in benchmark.variables if v.name == WEIGHT)
    return (*benchmark.with_role("input"), *benchmark.with_role("target"), *weight)


def _checked(arrays: Arrays, benchmark: Benchmark) -> Arrays:
    """Return inputs and targets as they are kept; ValueError if the problem has others."""
    counts = {len(values) if values.ndim else 0 for values in arrays.values()}
    if len(counts) != 1 or counts == {0}:
        raise ValueError(f"its variables have different numbers of samples, {sorted(counts)}")
    for variable in _needed(benchmark):
        values = arrays[variable.name]
        if values.shape[1:] != variable.shape:
            raise ValueError(
                f"{variable.name} has samples of shape {values.shape[1:]}, expected "
                f"{variable.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{variable.name} has values that are no numbers")
    return {name: values.astype(np.float32) for name, values in arrays.items()}


def _completed(arrays: Arrays, index: int, benchmark: Benchmark) -> Arrays:
    """Return one sample with all variables of the problem.

    What was not known of it is NaN, and its seed -1.
    """
    sample: Arrays = {"seed": np.asarray(-1, dtype=np.int64)}
    for variable in benchmark.variables:
        known = arrays.get(variable.name)
        sample[variable.name] = (
            np.full(variable.shape, np.nan, np.float32) if known is None else known[index]
        )
    return sample


def _place(root: Location, benchmark: Benchmark, digest: str) -> Location:
    return root / "added" / benchmark.name / f"{digest}.npz"


def _read(place: Location) -> Arrays:
    with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as file:
        return dict(file)


def _files(path: Path) -> list[Path]:
    """Return a file, or all files of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.rglob("*") if each.is_file())


def _changed(path: Path) -> float:
    """Return when a file, or anything in a folder, changed last."""
    return max(each.stat().st_mtime for each in [path, *_files(path)])


def _digest(path: Path) -> str:
    if companions(path):
        return digest_of_file(path)
    hashed = hashlib.sha256()
    for file in _files(path):
        hashed.update(str(file.relative_to(path)).encode())
        with file.open("rb") as content:
            hashed.update(hashlib.file_digest(content, "sha256").digest())
    return hashed.hexdigest()
