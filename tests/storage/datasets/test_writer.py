import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import LocalStore

from storage.datasets import writer as dataset_writer
from storage.datasets.reader import open_dataset, verify_dataset
from storage.datasets.writer import read_attributes
from storage.errors import (
    DatasetCorrupt,
    DatasetIncomplete,
    DatasetMismatch,
    NotADataset,
    StoreUnavailable,
)
from storage.location import Location
from tests.storage.datasets.small import job, small_block, small_schema, write_whole


@pytest.fixture(params=["folder", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "memory":
        return Location.parse(f"memory://{uuid4().hex}/small.zarr")
    return Location.parse(str(tmp_path / "small.zarr"))


def files(location: Location) -> dict[str, bytes]:
    folder = location.local_path
    assert folder is not None
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_was_written_is_read_back(location: Location) -> None:
    schema = small_schema()
    write_whole(location, schema)
    whole = open_dataset(location).to_xarray()
    expected = np.concatenate([small_block(schema, i)["after"] for i in range(schema.n_blocks)])
    np.testing.assert_array_equal(whole["after"], expected)
    assert whole["after"].dims == ("sample", "x")
    assert whole["after"].attrs["units"] == "m/s"
    assert whole["split"].values.tolist() == [0] * 10 + [1] * 3 + [2] * 4
    np.testing.assert_array_equal(whole["x"], schema.coordinates["x"])


def test_blocks_may_come_in_any_order_and_twice(tmp_path: Path) -> None:
    schema = small_schema()
    straight, mixed = (Location.parse(str(tmp_path / name)) for name in ("a.zarr", "b.zarr"))
    write_whole(straight, schema)
    job(mixed, schema).begin()
    for index in (4, 0, 2, 2, 1, 3):
        job(mixed, schema).write_block(index, small_block(schema, index))
    job(mixed, schema).finish()
    assert files(mixed) == files(straight)


def test_a_dataset_in_the_making_is_not_read(location: Location) -> None:
    schema = small_schema()
    with pytest.raises(NotADataset, match="no dataset at"):
        open_dataset(location)
    job(location, schema).begin()
    for index in range(schema.n_blocks):
        with pytest.raises(DatasetIncomplete, match="has not ended"):
            open_dataset(location)
        assert index in job(location, schema).missing_blocks()
        job(location, schema).write_block(index, small_block(schema, index))
    with pytest.raises(DatasetIncomplete):
        open_dataset(location)
    job(location, schema).finish()
    assert len(open_dataset(location).part("train", ["before"])) == 10


def test_finishing_with_blocks_missing_says_how_many(location: Location) -> None:
    schema = small_schema()
    job(location, schema).begin()
    job(location, schema).write_block(0, small_block(schema, 0))
    with pytest.raises(DatasetIncomplete, match="1 of 5 blocks"):
        job(location, schema).finish()


def test_starting_again_keeps_the_blocks(location: Location) -> None:
    schema = small_schema()
    job(location, schema).begin()
    job(location, schema).write_block(3, small_block(schema, 3))
    job(location, schema).begin()
    assert job(location, schema).missing_blocks() == [0, 1, 2, 4]


def is_cut(act: Callable[[], object], n_writes: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Do something with a disk that fails after some writes; return whether it needed more."""
    write_object = LocalStore.set

    async def write_until_killed(self: LocalStore, *arguments: Any, **options: Any) -> None:
        nonlocal n_writes
        if n_writes == 0:
            raise OSError("killed")
        n_writes -= 1
        await write_object(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "set", write_until_killed)
        try:
            act()
        except StoreUnavailable:
            return True
        return False


def test_a_template_cut_off_anywhere_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = small_schema()
    whole = Location.parse(str(tmp_path / "whole.zarr"))
    write_whole(whole, schema)
    for n_written in range(20):
        cut = Location.parse(str(tmp_path / f"cut{n_written}.zarr"))
        was_cut = is_cut(job(cut, schema).begin, n_written, monkeypatch)
        with pytest.raises((NotADataset, DatasetIncomplete)):
            open_dataset(cut)
        write_whole(cut, schema)
        assert files(cut) == files(whole)
        if not was_cut:
            break
    assert n_written > 8
    assert not was_cut


def test_a_completion_cut_off_anywhere_is_not_whole_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = small_schema()
    whole = Location.parse(str(tmp_path / "whole.zarr"))
    write_whole(whole, schema)
    n_written = 0
    while True:
        cut = Location.parse(str(tmp_path / f"cut{n_written}.zarr"))
        job(cut, schema).begin()
        for index in range(schema.n_blocks):
            job(cut, schema).write_block(index, small_block(schema, index))
        if not is_cut(job(cut, schema).finish, n_written, monkeypatch):
            break
        with pytest.raises(DatasetIncomplete):
            open_dataset(cut)
        job(cut, schema).finish()
        assert files(cut) == files(whole)
        n_written += 1
    assert n_written >= 2  # the consolidated metadata, then the mark


def test_xarray_opens_it_without_a_warning(location: Location) -> None:
    write_whole(location, small_schema())
    if location.local_path is not None:
        assert set(xr.open_zarr(location.url)) == {"before", "after", "split"}
    labelled = xr.open_zarr(location.zarr_store(read_only=True))  # a warning is an error here
    assert labelled.attrs["complete"] is True


def as_an_earlier_version_left_it(location: Location) -> bytes:
    """Give a complete dataset stored statistics, and take its consolidated metadata away."""
    write_whole(location, small_schema())
    group = zarr.open_group(location.zarr_store(), mode="r+", use_consolidated=False)
    group.create_array("after_mean", data=np.zeros(6), dimension_names=("x",))
    metadata = json.loads((location / "zarr.json").read_bytes())
    del metadata["consolidated_metadata"]
    (location / "zarr.json").write_bytes(json.dumps(metadata).encode())
    return (location / "zarr.json").read_bytes()


def test_a_dataset_of_an_earlier_version_is_consolidated_when_it_is_prepared_again(
    location: Location,
) -> None:
    as_an_earlier_version_left_it(location)
    digest = open_dataset(location).digest
    with pytest.warns(RuntimeWarning, match="consolidated metadata"):
        xr.open_zarr(location.zarr_store(read_only=True))
    assert job(location, small_schema()).begin() == []
    job(location, small_schema()).finish()
    assert "after_mean" in xr.open_zarr(location.zarr_store(read_only=True))
    assert open_dataset(location).digest == digest == verify_dataset(location).digest


def test_a_dataset_that_may_only_be_read_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.parse(str(tmp_path / "small.zarr"))
    before = as_an_earlier_version_left_it(location)
    assert not is_cut(job(location, small_schema()).finish, 0, monkeypatch)
    assert (location / "zarr.json").read_bytes() == before
    assert len(open_dataset(location).part("train", ["after"])[:]["after"]) == 10


def test_another_recipe_is_not_mixed_in(location: Location) -> None:
    job(location, small_schema()).begin()
    other = small_schema(provenance={"kind": "generated", "seeds": [1, 18]})
    with pytest.raises(DatasetMismatch, match="remove it or use another store"):
        job(location, other).begin()


def test_something_else_is_left_alone(location: Location) -> None:
    (location / "thesis.tex").write_bytes(b"years of work")
    for act in (lambda: job(location, small_schema()).begin(), lambda: open_dataset(location)):
        with pytest.raises(NotADataset, match=r"thesis\.tex"):
            act()
    assert (location / "thesis.tex").read_bytes() == b"years of work"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"attributes": 3}', b"\xff\xfe"])
def test_broken_metadata_gets_a_sentence(location: Location, content: bytes) -> None:
    (location / "zarr.json").write_bytes(content)
    with pytest.raises(NotADataset, match="is not a dataset of this program"):
        open_dataset(location)


def test_a_changed_byte_is_found_and_its_block_written_anew(tmp_path: Path) -> None:
    schema = small_schema()
    location = Location.parse(str(tmp_path / "small.zarr"))
    job(location, schema).begin()
    for index in range(schema.n_blocks):
        job(location, schema).write_block(index, small_block(schema, index))
    group = zarr.open_group(location.zarr_store(), mode="r+")
    group["after"][5, 2] = 1e9
    with pytest.raises(DatasetCorrupt, match="block 1 of after"):
        job(location, schema).finish()
    assert job(location, schema).missing_blocks() == [1]
    job(location, schema).write_block(1, small_block(schema, 1))
    job(location, schema).finish()
    assert open_dataset(location).part("train", ["after"])[5]["after"][2] == 10


def test_values_that_are_no_numbers_are_refused(location: Location) -> None:
    schema = small_schema()
    job(location, schema).begin()
    block = small_block(schema, 0)
    block["after"][1, 1] = np.nan
    with pytest.raises(ValueError, match="after with NaN"):
        job(location, schema).write_block(0, block)
    assert 0 in job(location, schema).missing_blocks()


def test_the_recipe_follows_content_and_not_the_environment() -> None:
    recipe = small_schema().recipe
    assert small_schema(environment={"numpy": "0.1"}).recipe == recipe
    assert small_schema(split_sizes={"train": 9, "validation": 4, "test": 4}).recipe != recipe
    assert small_schema(provenance={"kind": "generated", "seeds": [2]}).recipe != recipe


def test_completion_records_the_content(tmp_path: Path) -> None:
    schema = small_schema()
    first, second = (Location.parse(str(tmp_path / name)) for name in ("1.zarr", "2.zarr"))
    write_whole(first, schema)
    write_whole(second, schema)
    assert open_dataset(first).digest == open_dataset(second).digest
    attributes = read_attributes(first)
    assert attributes is not None
    assert len(attributes["blocks"]) == schema.n_blocks
    assert not Location(f"{first.url}.blocks").exists()


def test_a_bit_that_turned_in_a_complete_dataset_is_noticed(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "small.zarr"))
    write_whole(location, small_schema())
    chunk = tmp_path / "small.zarr" / "after" / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(DatasetCorrupt, match="cannot be read"):
        open_dataset(location).part("train", ["after"])[:]
    chunk.unlink()
    with pytest.raises(DatasetCorrupt, match="lacks some values of after"):
        open_dataset(location).part("train", ["after"])[:]


def test_a_damaged_record_costs_its_block_and_no_other(location: Location) -> None:
    schema = small_schema()
    job(location, schema).begin()
    for index in range(schema.n_blocks):
        job(location, schema).write_block(index, small_block(schema, index))
    (Location(f"{location.url}.blocks") / "000002.json").write_bytes(b'{"after"')
    with pytest.raises(DatasetCorrupt, match="record of block 2"):
        job(location, schema).finish()
    assert job(location, schema).missing_blocks() == [2]


def test_a_second_process_that_makes_the_template_leaves_what_the_first_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, schema = Location.parse(str(tmp_path / "d.zarr")), small_schema()
    job(place, schema).begin()
    job(place, schema).write_block(0, small_block(schema, 0))
    look, first_looks = zarr.Group.get, {variable.name for variable in schema.variables}

    def a_moment_too_early(self: zarr.Group, name: str, default: Any = None) -> Any:
        if name in first_looks:
            first_looks.remove(name)
            return None
        return look(self, name, default)

    monkeypatch.setattr(zarr.Group, "get", a_moment_too_early)
    dataset_writer._write_template(place, schema)
    assert not first_looks
    for index in range(1, schema.n_blocks):
        job(place, schema).write_block(index, small_block(schema, index))
    job(place, schema).finish()


def test_a_kept_sample_comes_back_until_it_is_discarded(tmp_path: Path) -> None:
    kept = job(Location.parse(str(tmp_path / "d.zarr")), small_schema())
    kept.keep_sample(3, {"u": np.arange(4.0), "n": np.array(7)})
    found = kept.kept_sample(3)
    assert found is not None
    np.testing.assert_array_equal(found["u"], np.arange(4.0))
    assert found["n"] == 7
    kept.discard_samples([2, 3])
    assert kept.kept_sample(3) is None


@pytest.mark.parametrize("content", [b"", b"half a file", b"PK\x03\x04 cut"])
def test_a_damaged_kept_sample_means_solving_again(content: bytes, tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "d.zarr"))
    (Location(f"{location.url}.samples") / "000001.npz").write_bytes(content)
    assert job(location, small_schema()).kept_sample(1) is None
