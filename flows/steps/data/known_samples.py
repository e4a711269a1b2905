"""Samples that need not be solved again, because another dataset has them.

A plan with more training samples is another dataset, and most of its samples are those of the one
before. A seed gives the same sample on any machine, so it is copied from there.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from storage.datasets.reader import Dataset, open_dataset
from storage.datasets.schema import SPLITS, DatasetSchema, digest_of
from storage.errors import StorageError
from storage.location import Location

SAME = ("kind", "generator", "sources", "benchmark", "parameters")
"""What two datasets must have in common for a seed to give the same sample in both."""


@dataclass(frozen=True)
class _Relative:
    """A complete dataset, and where it has the sample of a seed."""

    dataset: Dataset
    places: dict[int, int]


def known_samples(
    schema: DatasetSchema, location: Location, seeds: dict[int, int], replacement_step: int
) -> dict[int, dict[str, Any]]:
    """Return those of some planned seeds, by sample, that other datasets of the folder have.

    A stored seed of `replacement_step` or more stands for the planned one that it replaced. What
    cannot be read is left to the solver.
    """
    folder = Location(location.url.rsplit("/", 1)[0])
    names = tuple(variable.name for variable in schema.variables)
    found: dict[int, dict[str, Any]] = {}
    for relative in _relatives(folder, location.name, _origin(schema.provenance), replacement_step):
        places = {
            sample: relative.places[seed]
            for sample, seed in seeds.items()
            if sample not in found and seed in relative.places
        }
        with suppress(StorageError):
            found |= _read(relative.dataset, names, places)
    return found


@cache
def _relatives(
    folder: Location, own: str, wanted: str, replacement_step: int
) -> tuple[_Relative, ...]:
    found = []
    for name in folder.names():
        if name == own or not name.endswith(".zarr"):
            continue
        with suppress(StorageError):
            dataset = open_dataset(folder / name)
            if _origin(dataset.provenance) == wanted:
                found.append(_Relative(dataset, _places(dataset, replacement_step)))
    return tuple(found)


def _origin(provenance: Mapping[str, Any]) -> str:
    return digest_of({key: provenance.get(key) for key in SAME})


def _places(dataset: Dataset, replacement_step: int) -> dict[int, int]:
    """Return where the sample of every planned seed is; samples of files have none."""
    stored = np.concatenate([dataset.part(split, ["seed"])[:]["seed"] for split in SPLITS])
    return {int(seed) % replacement_step: place for place, seed in enumerate(stored) if seed >= 0}


def _read(
    dataset: Dataset, names: tuple[str, ...], places: dict[int, int]
) -> dict[int, dict[str, Any]]:
    """Return samples by their numbers, each variable read at once."""
    if not places:
        return {}
    rows = list(places.values())
    arrays = {name: dataset.read(array, rows) for name, array in dataset.arrays(names).items()}
    return {
        sample: {name: values[row] for name, values in arrays.items()}
        for row, sample in enumerate(places)
    }
