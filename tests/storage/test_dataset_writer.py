from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

from storage import dataset_writer
from storage.dataset_reader import open_dataset
from storage.dataset_writer import (
    finish_dataset,
    missing_blocks,
    read_attributes,
    start_dataset,
    write_block,
)
from storage.errors import (
    DatasetCorrupt,
    DatasetIncomplete,
    DatasetMismatch,
    NotADataset,
    StoreUnavailable,
)
from storage.location import Location
from tests.storage.datasets import small_block, small_schema, write_whole


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
    start_dataset(mixed, schema)
    for index in (4, 0, 2, 2, 1, 3):
        write_block(mixed, schema, index, small_block(schema, index))
    finish_dataset(mixed, schema)
    assert files(mixed) == files(straight)


def test_a_dataset_in_the_making_is_not_read(location: Location) -> None:
    schema = small_schema()
    with pytest.raises(NotADataset, match="no dataset at"):
        open_dataset(location)
    start_dataset(location, schema)
    for index in range(schema.n_blocks):
        with pytest.raises(DatasetIncomplete, match="has not ended"):
            open_dataset(location)
        assert index in missing_blocks(location, schema)
        write_block(location, schema, index, small_block(schema, index))
    with pytest.raises(DatasetIncomplete):
        open_dataset(location)
    finish_dataset(location, schema)
    assert len(open_dataset(location).part("train", ["before"])) == 10


def test_finishing_with_blocks_missing_says_how_many(location: Location) -> None:
    schema = small_schema()
    start_dataset(location, schema)
    write_block(location, schema, 0, small_block(schema, 0))
    with pytest.raises(DatasetIncomplete, match="1 of 5 blocks"):
        finish_dataset(location, schema)


def test_starting_again_keeps_the_blocks(location: Location) -> None:
    schema = small_schema()
    start_dataset(location, schema)
    write_block(location, schema, 3, small_block(schema, 3))
    start_dataset(location, schema)
    assert missing_blocks(location, schema) == [0, 1, 2, 4]


def test_a_template_cut_off_anywhere_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = small_schema()
    whole = Location.parse(str(tmp_path / "whole.zarr"))
    write_whole(whole, schema)
    write_object, n_allowed = LocalStore.set, 0

    async def write_until_killed(self: LocalStore, *arguments: Any, **options: Any) -> None:
        nonlocal n_allowed
        if n_allowed == 0:
            raise OSError("killed")
        n_allowed -= 1
        await write_object(self, *arguments, **options)

    for n_written in range(20):
        cut = Location.parse(str(tmp_path / f"cut{n_written}.zarr"))
        n_allowed = n_written
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "set", write_until_killed)
            try:
                start_dataset(cut, schema)
            except StoreUnavailable:
                was_cut = True
            else:
                was_cut = False
        with pytest.raises((NotADataset, DatasetIncomplete)):
            open_dataset(cut)
        write_whole(cut, schema)
        assert files(cut) == files(whole)
        if not was_cut:
            break
    assert n_written > 8
    assert not was_cut


def test_another_recipe_is_not_mixed_in(location: Location) -> None:
    start_dataset(location, small_schema())
    other = small_schema(provenance={"kind": "generated", "seeds": [1, 18]})
    with pytest.raises(DatasetMismatch, match="remove it or use another store"):
        start_dataset(location, other)


def test_something_else_is_left_alone(location: Location) -> None:
    (location / "thesis.tex").write_bytes(b"years of work")
    for act in (lambda: start_dataset(location, small_schema()), lambda: open_dataset(location)):
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
    start_dataset(location, schema)
    for index in range(schema.n_blocks):
        write_block(location, schema, index, small_block(schema, index))
    group = zarr.open_group(location.zarr_store(), mode="r+")
    group["after"][5, 2] = 1e9
    with pytest.raises(DatasetCorrupt, match="block 1 of after"):
        finish_dataset(location, schema)
    assert missing_blocks(location, schema) == [1]
    write_block(location, schema, 1, small_block(schema, 1))
    finish_dataset(location, schema)
    assert open_dataset(location).part("train", ["after"])[5]["after"][2] == 10


def test_values_that_are_no_numbers_are_refused(location: Location) -> None:
    schema = small_schema()
    start_dataset(location, schema)
    block = small_block(schema, 0)
    block["after"][1, 1] = np.nan
    with pytest.raises(ValueError, match="after with NaN"):
        write_block(location, schema, 0, block)
    assert 0 in missing_blocks(location, schema)


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
    start_dataset(location, schema)
    for index in range(schema.n_blocks):
        write_block(location, schema, index, small_block(schema, index))
    (Location(f"{location.url}.blocks") / "000002.json").write_bytes(b'{"after"')
    with pytest.raises(DatasetCorrupt, match="record of block 2"):
        finish_dataset(location, schema)
    assert missing_blocks(location, schema) == [2]


def test_a_second_process_that_makes_the_template_leaves_what_the_first_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, schema = Location.parse(str(tmp_path / "d.zarr")), small_schema()
    start_dataset(place, schema)
    write_block(place, schema, 0, small_block(schema, 0))
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
        write_block(place, schema, index, small_block(schema, index))
    finish_dataset(place, schema)
