from pathlib import Path

import numpy as np
import pytest

from storage.datasets.reader import Dataset, open_dataset
from storage.errors import NotADataset
from storage.location import Location
from tests.storage.datasets.small import small_block, small_schema, write_whole


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    location = Location.parse(str(tmp_path / "small.zarr"))
    write_whole(location, small_schema())
    return open_dataset(location)


def test_a_part_holds_its_own_samples(dataset: Dataset) -> None:
    expected = np.concatenate([small_block(small_schema(), i)["before"] for i in range(5)])
    for split, window in (("train", slice(0, 10)), ("validation", slice(10, 13))):
        part = dataset.part(split, ["before"])
        np.testing.assert_array_equal(part[:]["before"], expected[window])
        np.testing.assert_array_equal(part[1:3]["before"], expected[window][1:3])
    test = dataset.part("test", ["before", "after"])
    np.testing.assert_array_equal(test[-1]["before"], expected[16])
    assert set(test[0]) == {"before", "after"}
    with pytest.raises(IndexError, match="sample 4 of 4"):
        test[4]


def test_an_unknown_variable_is_named(dataset: Dataset) -> None:
    with pytest.raises(NotADataset, match="no variable pressure"):
        dataset.part("train", ["pressure"])[0]


def test_xarray_opens_it_lazily_with_where_it_came_from(dataset: Dataset) -> None:
    labelled = dataset.to_xarray()
    assert labelled["before"].chunks is not None
    assert labelled.attrs["provenance"]["kind"] == "generated"
    assert labelled.attrs["complete"] is True
