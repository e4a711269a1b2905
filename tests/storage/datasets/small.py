"""A small dataset for tests of the store."""

from typing import Any

import numpy as np

from storage.datasets.schema import DatasetSchema, VariableSchema
from storage.datasets.writer import DatasetJob
from storage.location import Location

N_POINTS = 6


def small_schema(**changes: Any) -> DatasetSchema:
    variables = tuple(
        VariableSchema(
            name=name, dims=("x",), shape=(N_POINTS,), role=role, unit="m/s", description=name
        )
        for name, role in (("before", "input"), ("after", "target"))
    )
    settings: dict[str, Any] = {
        "variables": variables,
        "coordinates": {"x": np.linspace(0, 1, N_POINTS)},
        "split_sizes": {"train": 10, "validation": 3, "test": 4},
        "samples_per_block": 4,
        "attributes": {"benchmark": "small"},
        "provenance": {"kind": "generated", "seeds": [0, 17]},
        "environment": {},
    }
    return DatasetSchema(**{**settings, **changes})


def small_block(schema: DatasetSchema, index: int) -> dict[str, np.ndarray]:
    samples = np.array(schema.block(index), dtype=np.float32)[:, None]
    points = np.arange(N_POINTS, dtype=np.float32)
    return {"before": samples + points / 10, "after": samples * points}


def job(location: Location, schema: DatasetSchema) -> DatasetJob:
    return DatasetJob(location=location, schema=schema)


def write_whole(location: Location, schema: DatasetSchema) -> None:
    made = job(location, schema)
    made.begin()
    for index in range(schema.n_blocks):
        made.write_block(index, small_block(schema, index))
    made.finish()
