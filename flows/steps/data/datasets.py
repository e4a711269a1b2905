"""Generate a dataset: solvers on one side, the store on the other.

job = plan_generation(plan, root)
for index in job.begin():                     template; the blocks that are missing
job.generate_block(index)                 any order, any process
job.finish()                                  verify, mark complete
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from flows.errors import GenerationFailed
from flows.steps.data.added_samples import given_samples
from flows.steps.training.sources import source_digest
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.plans import ConvertedPlan, DataPlan
from lsm_core.solvers.convergence import SolveFailed
from storage.datasets.reader import Dataset, open_dataset
from storage.datasets.schema import (
    SPLITS,
    DatasetSchema,
    VariableSchema,
    digest_of,
    environment,
)
from storage.datasets.writer import DatasetJob
from storage.errors import StorageError
from storage.location import Location

REPLACEMENT_STEP = 100_000_000
MAX_REPLACEMENTS = 5
SAME = ("kind", "generator", "sources", "benchmark", "parameters")
"""What two datasets must have in common for a seed to give the same sample in both."""

SEED = VariableSchema(
    name="seed",
    dims=(),
    shape=(),
    role="parameter",
    unit="1",
    description="seed of the sample; beyond 100000000, it replaces one that did not converge",
    dtype="int64",
)


def schema_of(plan: DataPlan) -> DatasetSchema:
    """Return what the dataset of a plan will hold."""
    benchmark = plan.benchmark
    return DatasetSchema(
        variables=(*(VariableSchema(**vars(each)) for each in benchmark.variables), SEED),
        coordinates=benchmark.coordinates,
        split_sizes={str(split): size for split, size in plan.split_sizes.items()},
        samples_per_block=plan.samples_per_block,
        attributes={
            "benchmark": benchmark.name,
            "title": benchmark.title,
            "space": list(benchmark.space),
            "positions": benchmark.positions,
        },
        provenance={
            "kind": plan.origin,
            "generator": type(benchmark).__module__,
            "sources": source_digest(type(benchmark).__module__),
            **plan.to_plain(),
        },
        environment=environment(),
    )


def recipe_of(plan: DataPlan) -> str:
    """Return the hash of everything that decides the samples of a plan."""
    return plan.recipe if isinstance(plan, ConvertedPlan) else schema_of(plan).recipe


def location_of(plan: DataPlan, root: Location) -> Location:
    """Return where the dataset of a plan lies; another recipe lies elsewhere."""
    if isinstance(plan, ConvertedPlan):
        return root / "datasets" / plan.benchmark.name / plan.dataset
    return _location(plan, schema_of(plan), root)


def _location(plan: DataPlan, schema: DatasetSchema, root: Location) -> Location:
    space = "x".join(str(size) for size in plan.benchmark.shape.space)
    name = f"{space}-n{schema.n_samples}-{schema.recipe[:12]}.zarr"
    return root / "datasets" / plan.benchmark.name / name


@dataclass(frozen=True, kw_only=True)
class Generation(DatasetJob):
    """The samples of a plan on their way into one dataset.

    Children get it as it is: they read no sources, and write for the schema of whoever began.
    """

    plan: DataPlan
    root: Location

    def generate_block(self, index: int) -> int:
        """Solve the samples of one block, write them, and return the block's number."""
        plan, block = self.plan, self.schema.block(index)
        samples = given_samples(plan, self.root, block)
        planned = {sample: plan.seed_of(sample) for sample in block if sample not in samples}
        samples |= _known_samples(self.schema, self.location, planned)
        unknown = [sample for sample in block if sample not in samples]
        if plan.keep_each_sample:
            samples |= {sample: self._kept_or_solved(sample) for sample in unknown}
        elif unknown:
            solved = _solve(plan.benchmark, [plan.seed_of(sample) for sample in unknown])
            samples |= zip(unknown, solved, strict=True)
        names = [variable.name for variable in self.schema.variables]
        self.write_block(index, {n: np.stack([samples[s][n] for s in block]) for n in names})
        if plan.keep_each_sample:
            self.discard_samples(block)
        return index

    def _kept_or_solved(self, sample: int) -> dict[str, Any]:
        kept = self.kept_sample(sample)
        if kept is None:
            kept = _solve_one(self.plan.benchmark, self.plan.seed_of(sample))
            self.keep_sample(sample, kept)
        return kept


def plan_generation(plan: DataPlan, root: Location) -> Generation:
    """Return the making of a plan's dataset; nothing is touched yet."""
    schema = schema_of(plan)
    return Generation(location=_location(plan, schema, root), schema=schema, plan=plan, root=root)


def _known_samples(
    schema: DatasetSchema, location: Location, seeds: dict[int, int]
) -> dict[int, dict[str, Any]]:
    """Return those of some planned seeds, by sample, that other datasets of the folder have.

    A plan with more training samples is another dataset, and most of its samples are those of the
    one before. A seed gives the same sample on any machine, so it is copied from there. What cannot
    be read is left to the solver.
    """
    folder = Location(location.url.rsplit("/", 1)[0])
    names = [variable.name for variable in schema.variables]
    found: dict[int, dict[str, Any]] = {}
    for dataset, places in _relatives(folder, location.name, _origin(schema.provenance)):
        wanted = {s: seed for s, seed in seeds.items() if s not in found and seed in places}
        if not wanted:
            continue
        rows = [places[seed] for seed in wanted.values()]
        with suppress(StorageError):
            arrays = {n: dataset.read(array, rows) for n, array in dataset.arrays(names).items()}
            for row, sample in enumerate(wanted):
                found[sample] = {name: values[row] for name, values in arrays.items()}
    return found


@cache
def _relatives(
    folder: Location, own: str, origin: str
) -> tuple[tuple[Dataset, dict[int, int]], ...]:
    """Return the complete datasets of the same origin, each with the places of its seeds.

    A stored seed of `REPLACEMENT_STEP` or more stands for the planned one that it replaced; samples
    of files have none.
    """
    found = []
    for name in folder.names():
        if name == own or not name.endswith(".zarr"):
            continue
        with suppress(StorageError):
            dataset = open_dataset(folder / name)
            if _origin(dataset.provenance) == origin:
                parts = [dataset.part(split, ["seed"])[:]["seed"] for split in SPLITS]
                seeds = enumerate(np.concatenate(parts).tolist())
                places = {seed % REPLACEMENT_STEP: place for place, seed in seeds if seed >= 0}
                found.append((dataset, places))
    return tuple(found)


def _origin(provenance: Mapping[str, Any]) -> str:
    return digest_of({key: provenance.get(key) for key in SAME})


def _solve(benchmark: Benchmark, seeds: list[int]) -> list[dict[str, Any]]:
    """Return a sample for every seed, each with the seed that made it.

    A seed whose problem the solver cannot solve is replaced by another from a range of its own, so
    that no other sample changes. The stored seed then differs from the planned one.
    """
    try:
        samples = benchmark.generate_many(seeds)
    except SolveFailed:
        return [_solve_one(benchmark, seed) for seed in seeds]
    pairs = zip(samples, seeds, strict=True)
    return [{**sample, "seed": np.int64(seed)} for sample, seed in pairs]


def _solve_one(benchmark: Benchmark, planned: int) -> dict[str, Any]:
    failure: SolveFailed | None = None
    for attempt in range(MAX_REPLACEMENTS + 1):
        seed = planned + attempt * REPLACEMENT_STEP
        try:
            return {**benchmark.generate(seed), "seed": np.int64(seed)}
        except SolveFailed as error:
            failure = error
    raise GenerationFailed(
        f"{benchmark.name} failed for seed {planned} and its {MAX_REPLACEMENTS} replacements; "
        f"the last time: {failure}"
    ) from failure
