from pathlib import Path

import numpy as np
import pytest

from storage.datasets.spool import SampleSpool
from storage.location import Location


@pytest.fixture
def spool(tmp_path: Path) -> SampleSpool:
    return SampleSpool.beside(Location.parse(str(tmp_path / "d.zarr")))


def test_a_kept_sample_comes_back_until_it_is_discarded(spool: SampleSpool) -> None:
    spool.put(3, {"u": np.arange(4.0), "n": np.array(7)})
    found = spool.get(3)
    assert found is not None
    np.testing.assert_array_equal(found["u"], np.arange(4.0))
    assert found["n"] == 7
    spool.discard([2, 3])
    assert spool.get(3) is None


@pytest.mark.parametrize("content", [b"", b"half a file", b"PK\x03\x04 cut"])
def test_a_damaged_file_means_solving_again(spool: SampleSpool, content: bytes) -> None:
    spool._file(1).write_bytes(content)
    assert spool.get(1) is None
