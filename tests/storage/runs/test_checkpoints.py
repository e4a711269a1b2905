import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from storage.errors import CheckpointCorrupt
from storage.location import Location
from storage.runs.checkpoints import Checkpoints


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(Location.parse(str(tmp_path / "run")))


def test_the_newest_comes_back_and_old_ones_go(checkpoints: Checkpoints) -> None:
    assert checkpoints.latest() is None
    for step in (1, 2, 10):
        checkpoints.save(step, b"state %d" % step)
    assert checkpoints.latest() == b"state 10"
    names = checkpoints.location.names()
    assert [name for name in names if name.endswith(".checkpoint")] == [
        "00000002.checkpoint",
        "00000010.checkpoint",
    ]


def test_a_damaged_newest_gives_way_to_the_one_before(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, b"good")
    checkpoints.save(2, b"damaged later")
    (checkpoints.location / "00000002.checkpoint").write_bytes(b"damaged")
    assert checkpoints.latest() == b"good"


def test_a_checkpoint_without_its_checksum_does_not_count(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, b"good")
    (checkpoints.location / "00000002.checkpoint").write_bytes(b"killed before the checksum")
    assert checkpoints.latest() == b"good"


def test_nothing_readable_is_said_rather_than_trained_over(checkpoints: Checkpoints) -> None:
    checkpoints.save(1, b"good")
    (checkpoints.location / "00000001.checkpoint").write_bytes(b"")
    with pytest.raises(CheckpointCorrupt, match="none of the 1 checkpoints"):
        checkpoints.latest()


def test_results_and_arrays_are_kept(checkpoints: Checkpoints) -> None:
    assert checkpoints.result() is None
    checkpoints.write_result({"error": 0.1})
    checkpoints.write_arrays("showcase", {"u": np.arange(3)})
    assert checkpoints.result() == {"error": 0.1}
    np.testing.assert_array_equal(checkpoints.arrays("showcase")["u"], [0, 1, 2])
    (checkpoints.location / "result.json").write_bytes(b"{")
    with pytest.raises(CheckpointCorrupt, match=r"result\.json is not readable"):
        checkpoints.result()


def test_damaged_best_weights_are_refused_and_older_files_still_read(
    checkpoints: Checkpoints,
) -> None:
    weights = save({"weight": np.arange(6, dtype=np.float32)})
    checkpoints.save_best(weights)
    assert checkpoints.best() == weights
    file = checkpoints.location / "best.weights"
    kept = file.read_bytes()
    for damaged in (kept[:-1], kept[:40], b"", kept[:60] + b"?" + kept[61:]):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointCorrupt, match=r"best\.weights does not have its checksum"):
            checkpoints.best()
    file.write_bytes(weights)
    assert checkpoints.best() == weights


def test_damaged_arrays_are_refused(checkpoints: Checkpoints) -> None:
    checkpoints.write_arrays("showcase", {"u": np.arange(60.0)})
    file = checkpoints.location / "showcase.npz"
    kept = file.read_bytes()
    for damaged in (kept[:-30], b"", kept[:80] + b"\xff\xfe\xff" + kept[83:]):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointCorrupt, match=r"showcase\.npz cannot be read"):
            checkpoints.arrays("showcase")


def test_two_processes_that_save_the_same_step_leave_one_that_can_be_read(tmp_path: Path) -> None:
    checkpoints = Checkpoints(Location.parse(str(tmp_path)))
    checkpoints.save(7, b"an earlier state")
    checkpoints.save(8, b"the same weights, saved by one")
    mark = (tmp_path / "00000008.sha256").read_bytes()
    checkpoints.save(8, b"the same weights, saved by another")
    (tmp_path / "00000008.sha256").write_bytes(mark)  # the one's mark came last
    assert checkpoints.latest() == b"the same weights, saved by another"


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    content = b"state"
    (tmp_path / "00000003.checkpoint").write_bytes(content)
    (tmp_path / "00000003.sha256").write_text(hashlib.sha256(content).hexdigest())
    assert Checkpoints(Location.parse(str(tmp_path))).latest() == content
