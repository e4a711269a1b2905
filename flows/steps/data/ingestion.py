"""Files of one's own into the store, as a dataset like every other.

job = plan_ingestion(declaration, files, root)      looks at shapes and hashes; writes nothing
for index in job.begin():                           the blocks that are missing
    job.ingest_block(index)                         any order, any process
keep_problem(job)                                   verify, mark complete, give it its name
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from flows.errors import BadInput
from flows.steps.data.declaration import COMPONENT, SAMPLE, Declaration, Declared
from flows.steps.data.file_arrays import FileSamples, Place, arrays_in, digest_of_file
from flows.steps.data.given import keep_record
from lsm_core.benchmarks.given import POSITIONS, WEIGHT, GivenProblem
from lsm_core.problems.variable import Role, Variable
from storage.datasets.schema import SPLITS, DatasetSchema, VariableSchema, environment
from storage.datasets.writer import DatasetJob
from storage.location import Location

BLOCK_BYTES = 2**25
LARGEST_BLOCK = 64
CONVERSION = 1
"""The way files are converted; another number makes all datasets anew."""
ROLES: dict[str, Role] = {"position": "input", "input": "input", "target": "target"}
LEAST_SAMPLES = 3

DIGEST = VariableSchema(
    name="digest",
    dims=(),
    shape=(),
    role="parameter",
    unit="1",
    description="first bytes of the hash of the sample's inputs and targets",
    dtype="int64",
)


@dataclass(frozen=True, kw_only=True)
class Ingestion(DatasetJob):
    """Samples of files on their way into one dataset; plain data that any process can take."""

    problem: GivenProblem
    samples: FileSamples
    order: tuple[Place, ...]
    """Where the samples of the dataset are, those to train on first."""

    def ingest_block(self, index: int) -> int:
        """Read the samples of one block, write them, and return the block's number."""
        block = [self.sample(self.order[number]) for number in self.schema.block(index)]
        self.write_block(
            index, {name: np.stack([each[name] for each in block]) for name in block[0]}
        )
        return index

    def sample(self, place: Place) -> dict[str, Any]:
        """Return all variables of one sample, and what tells whether it is there twice."""
        return read_sample(self.samples, self.problem, place)

    def require_different(self) -> None:
        """Raise BadInput if a sample is there twice: what is tested was then trained on."""
        digests = self.written(DIGEST.name)
        values, counts = np.unique(digests, return_counts=True)
        if self.samples.declaration.duplicates or len(values) == len(digests):
            return
        twice = values[np.argmax(counts > 1)]
        one, other = (self.order[int(n)] for n in np.flatnonzero(digests == twice)[:2])
        self.discard()
        raise BadInput(
            f"{self._named(one)} and {self._named(other)} are the same sample, and "
            f"{len(digests) - len(values)} in all are there twice; leave them out, or say "
            "--duplicates"
        )

    def _named(self, place: Place) -> str:
        declared = self.samples.declaration.with_role("target")[0]
        path = self.samples.path_of(declared, declared.arrays[0], place)
        if self.samples.declaration.each_file_is_a_sample:
            return path.name
        return f"row {place.row} of {path.name}"


def read_sample(samples: FileSamples, problem: GivenProblem, place: Place) -> dict[str, Any]:
    """Return all variables of one sample, as long as the longest where numbers differ."""
    sizes = sizes_of(samples, place)
    hashed = hashlib.sha256()
    found: dict[str, Any] = {}
    for declared in samples.declaration.variables:
        values = samples.read(declared, place, sizes)
        hashed.update(values.tobytes())
        found[WEIGHT if declared.role == "volume" else declared.name] = values
    n_points = sizes.get("point", 0)
    if problem.has_weight:
        found.setdefault(WEIGHT, np.ones(n_points, np.float32))
        if not (found[WEIGHT] > 0).all():
            raise BadInput(f"{place} has volumes that are not positive")
        found[WEIGHT] = found[WEIGHT] / found[WEIGHT].mean()
    for variable in problem.arrays:
        found[variable.name] = _lengthened(found[variable.name], variable, n_points)
    found[DIGEST.name] = np.int64(int.from_bytes(hashed.digest()[:7], "big"))
    return found


def _lengthened(values: Any, variable: Variable, n_points: int) -> Any:
    """Return values with places for points that a sample has not; its weight is 0 there.

    The last point is repeated: whoever forgets the weight is wrong by little, and it compresses.
    """
    if variable.dims[:1] != ("point",) or len(values) == variable.shape[0]:
        return values.reshape(variable.shape)
    n_more = variable.shape[0] - n_points
    if n_more < 0:
        raise BadInput(
            f"a sample has {n_points} points, where the longest so far has {variable.shape[0]}; "
            "ingest all files again"
        )
    more = np.zeros(n_more) if variable.name == WEIGHT else np.repeat(values[-1:], n_more, axis=0)
    return np.concatenate([values, more]).astype(np.float32)


def plan_ingestion(declaration: Declaration, files: Sequence[Path], root: Location) -> Ingestion:
    """Return the making of a dataset of files; they are looked at, nothing is written."""
    samples = FileSamples(declaration, tuple(path.absolute() for path in files))
    places, splits = _ordered(samples)
    problem = _problem(samples, places)
    sample_bytes = sum(4 * prod(v.shape) for v in problem.arrays)
    schema = DatasetSchema(
        variables=(*(VariableSchema(**vars(v)) for v in problem.arrays), DIGEST),
        coordinates=problem.coordinates,
        split_sizes=splits,
        samples_per_block=max(1, min(LARGEST_BLOCK, BLOCK_BYTES // sample_bytes)),
        attributes={
            "benchmark": problem.name,
            "title": problem.title,
            "space": list(problem.space),
            "positions": problem.positions,
        },
        provenance={
            "kind": "given",
            "conversion": CONVERSION,
            "files": [
                {"name": path.name, "sha256": digest_of_file(path)} for path in samples.files
            ],
            "declaration": declaration.to_plain(),
            "benchmark": problem.name,
            "parameters": problem.parameters(),
        },
        environment=environment(),
    )
    space = "x".join(str(size) for size in problem.shape.space)
    name = f"{space}-n{schema.n_samples}-{schema.recipe[:12]}.zarr"
    return Ingestion(
        location=root / "datasets" / problem.name / name,
        schema=schema,
        problem=problem,
        samples=samples,
        order=places,
    )


def keep_problem(job: Ingestion, root: Location) -> None:
    """Mark the dataset complete, and give the problem its name; an older one stays in the store."""
    if job.missing_blocks() == [] and not job.is_complete():
        job.require_different()
    job.finish()
    keep_record(
        root,
        job.problem,
        split_sizes=job.schema.split_sizes,
        recipe=job.schema.recipe,
        dataset=job.location.name,
        samples_per_block=job.schema.samples_per_block,
        declaration=job.samples.declaration.to_toml(),
    )


def sizes_of(samples: FileSamples, place: Place) -> dict[str, int]:
    """Return the sizes of all axes of a sample; BadInput if two variables disagree."""
    sizes: dict[str, int] = {}
    said: dict[str, str] = {}
    for declared in samples.variables:
        for axis, size in samples.shape_in_file(declared, place).items():
            if "." in axis or axis in (COMPONENT, "time"):
                continue
            if sizes.setdefault(axis, size) != size:
                path = samples.path_of(declared, declared.arrays[0], place)
                raise BadInput(
                    f"{declared.name} has {size} values along {axis} and {said[axis]} has "
                    f"{sizes[axis]}, in {path}"
                )
            said.setdefault(axis, declared.name)
    return sizes


def _problem(samples: FileSamples, places: Sequence[Place]) -> GivenProblem:
    """Return the problem: the variables in the order in which models read them."""
    declaration = samples.declaration
    first = places[0]
    sizes = sizes_of(samples, first)
    most, counts = dict(sizes), set[int]()
    seen = {place.file: place for place in places}
    for place in seen.values():
        own = sizes_of(samples, place)
        counts.add(own.get("point", 0))
        differing = [a for a in own if own[a] != most[a] and a != "point"]
        if differing:
            raise BadInput(
                f"{samples.files[place.file].name} has {own[differing[0]]} points along "
                f"{differing[0]}, others have {most[differing[0]]}; only points in no order "
                "may differ in number"
            )
        most = {axis: max(most[axis], own[axis]) for axis in most}
    if not any(axis in declaration.space for v in declaration.variables for axis in v.whole_axes):
        raise BadInput("no variable has values at points; positions or a field are needed")
    variables = sorted(declaration.variables, key=lambda v: _rank(v, declaration))
    arrays = _with_own_axes(
        [_variable(samples, v, first, sizes, most) for v in variables if v.role != "volume"]
    )
    if len(counts) > 1 or declaration.with_role("volume"):
        arrays.append(
            Variable(
                name=WEIGHT,
                dims=("point",),
                shape=(most["point"],),
                role="coordinate",
                description="how much a point counts, on average 1; 0 where a sample has none",
            )
        )
    positions = declaration.with_role("position")
    steps = 1
    if declaration.rollout:
        (target,) = declaration.with_role("target")
        steps = next(v for v in arrays if v.name == target.name).shape[-1]
    scattered = declaration.geometry == "points"
    return GivenProblem(
        name=declaration.name,
        title=declaration.title
        or declaration.name.replace("_", " ").replace("-", " ").capitalize(),
        space=declaration.space,
        positions="scattered points"
        if scattered
        else "periodic nodes"
        if declaration.periodic
        else "nodes",
        arrays=tuple(arrays),
        steps=steps,
        same_points=bool(positions) and SAMPLE not in positions[0].whole_axes
        if not declaration.each_file_is_a_sample
        else False,
    )


def _rank(declared: Declared, declaration: Declaration) -> int:
    """Return where a variable stands: positions, fields at points, parameters, then targets."""
    is_field = any(axis in declaration.space for axis in declared.whole_axes)
    if declared.role == "position":
        return 0
    return {"input": 1, "target": 3, "volume": 5}[declared.role] + (not is_field)


def _variable(
    samples: FileSamples,
    declared: Declared,
    place: Place,
    sizes: dict[str, int],
    most: dict[str, int],
) -> Variable:
    """Return a variable as it is stored, by reading it of one sample."""
    values = samples.read(declared, place, sizes)
    space = samples.declaration.space
    own = tuple(axis for axis in space if axis in declared.whole_axes)
    others = [a for a in declared.whole_axes if a not in (*space, SAMPLE)]
    others += [COMPONENT] * (len(declared.arrays) > 1)
    if own and own != space:
        raise BadInput(f"{declared.name} has the axes {', '.join(own)} of {', '.join(space)}")
    if declared.role == "position" and (values.ndim != len(space) + 1 or values.shape[-1] > 3):
        raise BadInput(
            f"positions have shape {values.shape}, expected up to three coordinates of each point "
            "behind its number"
        )
    dims = (*own, *(_unique(axis, number, others) for number, axis in enumerate(others)))
    shape = (*(most[axis] for axis in own), *values.shape[len(own) :])
    return Variable(
        name=POSITIONS if declared.role == "position" else declared.name,
        dims=dims,
        shape=shape,
        role=ROLES[declared.role],
        unit=stored_unit(samples.unit_of(declared), declared.factor),
        description="",
    )


def _with_own_axes(variables: Sequence[Variable]) -> list[Variable]:
    """Return the variables with axes renamed that have the name of one of another size.

    A name has one size in a dataset, or xarray does not open it.
    """
    sizes: dict[str, int] = {}
    named = []
    for variable in variables:
        dims = tuple(
            axis if sizes.setdefault(axis, size) == size else f"{variable.name}_{axis}"
            for axis, size in zip(variable.dims, variable.shape, strict=True)
        )
        sizes |= dict(zip(dims, variable.shape, strict=True))
        named.append(replace(variable, dims=dims))
    return named


def stored_unit(unit: str, factor: float) -> str:
    """Return the unit of values that were divided by a factor."""
    if factor == 1:
        return unit
    return f"{factor:g}" if unit == "1" else f"{factor:g} {unit}"


def _unique(axis: str, number: int, others: list[str]) -> str:
    return axis if others.count(axis) == 1 else f"{axis}{number}"


def _ordered(samples: FileSamples) -> tuple[tuple[Place, ...], dict[str, int]]:
    """Return the samples in the order of the dataset, and how many are in each part."""
    splits, places = samples.declaration.splits, samples.places
    if len(places) < LEAST_SAMPLES:
        raise BadInput(f"{len(places)} samples are too few to train, validate and test on")
    if splits.by == "number":
        parts = _by_number(samples)
    else:
        labels = _labels(samples)
        parts = {
            split: [p for p, own in zip(places, labels, strict=True) if own == split]
            for split in SPLITS
        }
    if not parts["validation"] and len(parts["train"]) > 1:
        n_last = max(1, len(parts["train"]) // 10)
        parts["train"], parts["validation"] = parts["train"][:-n_last], parts["train"][-n_last:]
    empty = [split for split in ("train", "test") if not parts[split]]
    if empty:
        raise BadInput(f"no sample is to {empty[0]} on; split by number, or name files so")
    ordered = tuple(place for split in SPLITS for place in parts[split])
    return ordered, {split: len(parts[split]) for split in SPLITS}


def _by_number(samples: FileSamples) -> dict[str, list[Place]]:
    splits, places = samples.declaration.splits, list(samples.places)
    wanted = [splits.train, splits.validation, splits.test]
    total = len(places)
    if sum(wanted) <= 1 + 1e-9:
        counts = [0, round(wanted[1] * total), max(1, round(wanted[2] * total))]
        left = total - counts[1] - counts[2]
        # Rounding leaves no sample out where parts are of the whole.
        counts[0] = left if sum(wanted) > 1 - 1e-9 else min(round(wanted[0] * total), left)
    else:
        counts = [int(each) for each in wanted]
    if min(counts) < 0 or sum(counts) > total:
        raise BadInput(f"{wanted} samples are asked for, but there are {total}")
    if not splits.in_order:
        # Simulations often come sorted by a parameter.
        places = [places[n] for n in np.random.default_rng(0).permutation(total)]
    edges = np.cumsum([0, *counts])
    return {s: places[edges[n] : edges[n + 1]] for n, s in enumerate(SPLITS)}


def _labels(samples: FileSamples) -> list[str]:
    """Return the part of every sample, by the name of its file or by a column."""
    declaration = samples.declaration
    target = declaration.with_role("target")[0]
    if declaration.splits.by == "file":
        return [
            split_of_name(samples.path_of(target, target.arrays[0], place))
            for place in samples.places
        ]
    name = declaration.splits.column
    labels = []
    for place in samples.places:
        path = samples.path_of(target, target.arrays[0], place)
        if name not in arrays_in(path):
            raise BadInput(f"{path} has no column {name} to split by")
        column = arrays_in(path)[name]
        value = float(np.ravel(column[place.row if column.shape else ...])[0])
        if value not in (0, 1, 2):
            raise BadInput(f"{name} in {path} has {value}, expected 0 train, 1 validation, 2 test")
        labels.append(SPLITS[int(value)])
    return labels


def split_of_name(path: Path) -> str:
    """Return the part that the name of a file, or of its folder, says; `train` if neither does."""
    folder = {"train": "train", "test": "test", "val": "validation", "valid": "validation"}
    for word in re.split(r"[^a-z]+", path.stem.lower()):
        for beginning in ("test", "val", "train"):
            if word.startswith(beginning):
                return folder[beginning]
    # Of a folder the whole name counts: work is often done in one called `tests of july`.
    return folder.get(path.parent.name.lower(), "train")


def problem_facts(job: Ingestion) -> dict[str, Any]:
    """Return what came of files, as plain data."""
    return {
        "name": job.problem.name,
        "dataset": job.location.url,
        "samples": dict(job.schema.split_sizes),
        "points": list(job.problem.shape.space),
        "variables": [asdict(v) for v in job.problem.arrays],
    }
