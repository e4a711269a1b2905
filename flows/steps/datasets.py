"""Generate a dataset: solvers on one side, the store on the other."""

from typing import Any

import numpy as np

from flows.errors import GenerationFailed
from flows.steps.added_samples import added_arrays
from flows.steps.known_samples import known_samples
from flows.steps.official_samples import official_arrays
from flows.steps.sources import source_digest
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.experiments.data_plan import DataPlan
from lsm_core.experiments.official_plan import OfficialPlan
from lsm_core.problems.variable import Variable
from lsm_core.solvers.convergence import SolveFailed
from storage import dataset_writer
from storage.dataset_reader import Dataset, open_dataset
from storage.dataset_schema import DatasetSchema, VariableSchema
from storage.location import Location
from storage.provenance import environment
from storage.sample_spool import SampleSpool

REPLACEMENT_STEP = 100_000_000
MAX_REPLACEMENTS = 5

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
        variables=(*map(_variable_schema, benchmark.variables), SEED),
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
            **plan.describe(),
        },
        environment=environment(),
    )


def recipe_of(plan: DataPlan) -> str:
    """Return the hash of everything that decides the samples of a plan."""
    return plan.recipe if isinstance(plan, OfficialPlan) else schema_of(plan).recipe


def location_of(plan: DataPlan, root: Location) -> Location:
    """Return where the dataset of a plan lies; another recipe lies elsewhere."""
    if isinstance(plan, OfficialPlan):
        return root / "datasets" / plan.benchmark.name / plan.dataset
    schema = schema_of(plan)
    space = "x".join(str(size) for size in plan.benchmark.shape.space)
    name = f"{space}-n{schema.n_samples}-{schema.recipe[:12]}.zarr"
    return root / "datasets" / plan.benchmark.name / name


def begin(plan: DataPlan, root: Location) -> list[int]:
    """Write the template and return the blocks that have to be generated."""
    location, schema = location_of(plan, root), schema_of(plan)
    dataset_writer.start_dataset(location, schema)
    return dataset_writer.missing_blocks(location, schema)


def generate_block(plan: DataPlan, root: Location, index: int) -> int:
    """Solve the samples of one block, write them, and return the block's number."""
    schema, location = schema_of(plan), location_of(plan, root)
    block = schema.block(index)
    spool = SampleSpool.beside(location)
    samples = added_arrays(plan, root, block) | official_arrays(plan, root, block)
    planned = {sample: plan.seed_of(sample) for sample in block if sample not in samples}
    samples |= known_samples(schema, location, planned, REPLACEMENT_STEP)
    unknown = [sample for sample in block if sample not in samples]
    if plan.keep_each_sample:
        samples |= {sample: _kept_or_solved(plan, spool, sample) for sample in unknown}
    elif unknown:
        solved = _solve(plan.benchmark, [plan.seed_of(sample) for sample in unknown])
        samples |= zip(unknown, solved, strict=True)
    stacked = {v.name: np.stack([samples[n][v.name] for n in block]) for v in schema.variables}
    dataset_writer.write_block(location, schema, index, stacked)
    if plan.keep_each_sample:
        spool.discard(block)
    return index


def _kept_or_solved(plan: DataPlan, spool: SampleSpool, sample: int) -> dict[str, Any]:
    kept = spool.get(sample)
    if kept is None:
        kept = _solve_one(plan.benchmark, plan.seed_of(sample))
        spool.put(sample, kept)
    return kept


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


def _variable_schema(variable: Variable) -> VariableSchema:
    return VariableSchema(
        name=variable.name,
        dims=variable.dims,
        shape=variable.shape,
        role=variable.role,
        unit=variable.unit,
        description=variable.description,
    )


def finish(plan: DataPlan, root: Location) -> Dataset:
    """Verify the blocks, mark the dataset complete and open it."""
    location = location_of(plan, root)
    dataset_writer.finish_dataset(location, schema_of(plan))
    SampleSpool.beside(location).location.remove()
    return open_dataset(location)


def find(plan: DataPlan, root: Location) -> Dataset:
    """Open the dataset of a plan; say so if it is not there or not complete."""
    return open_dataset(location_of(plan, root))
