"""Whether what is kept is still what was written."""

import hashlib

import numpy as np

from storage.dataset_reader import Dataset, open_dataset
from storage.dataset_schema import digest_of
from storage.errors import DatasetCorrupt
from storage.location import Location


def verify_dataset(location: Location) -> Dataset:
    """Read a complete dataset block by block and return it; DatasetCorrupt if a value changed."""
    dataset = open_dataset(location)
    checksums = dataset.attributes["blocks"]
    if digest_of(checksums) != dataset.digest:
        raise DatasetCorrupt(f"the checksums of {location} are not those it was completed with")
    size = int(dataset.attributes["samples_per_block"])
    arrays = dataset.arrays(tuple(checksums[0]))
    for index, expected in enumerate(checksums):
        for name, array in arrays.items():
            block = slice(index * size, min((index + 1) * size, array.shape[0]))
            values = np.ascontiguousarray(dataset.read(array, block))
            if hashlib.sha256(values.tobytes()).hexdigest() != expected[name]:
                raise DatasetCorrupt(
                    f"block {index} of {name} in {location} does not have its checksum; remove "
                    "the dataset and prepare it again: the same bytes are made"
                )
    return dataset
