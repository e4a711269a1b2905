"""The contract of a location, run over every kind of store."""

import os
import pickle
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import zarr

from storage.errors import StoreUnavailable
from storage.location import Location


class LocationContract:
    @pytest.fixture
    def root(self) -> Location:
        raise AssertionError("a kind of store provides its root")

    def test_bytes_come_back_as_they_were_written(self, root: Location) -> None:
        (root / "a" / "b").write_bytes(b"one")
        assert (root / "a" / "b").read_bytes() == b"one"

    def test_a_second_write_replaces_the_first(self, root: Location) -> None:
        (root / "file").write_bytes(b"a longer first content")
        (root / "file").write_bytes(b"two")
        assert (root / "file").read_bytes() == b"two"

    def test_reading_what_is_not_there_says_so(self, root: Location) -> None:
        with pytest.raises(FileNotFoundError):
            (root / "nothing").read_bytes()

    def test_names_are_the_children_in_order(self, root: Location) -> None:
        for name in ("b", "a", "c/d"):
            (root / name).write_bytes(b"")
        assert root.names() == ["a", "b", "c"]
        assert (root / "nowhere").names() == []

    def test_removing_takes_the_whole_folder_and_nothing_else(self, root: Location) -> None:
        (root / "gone" / "deep" / "file").write_bytes(b"1")
        (root / "kept").write_bytes(b"2")
        (root / "gone").remove()
        (root / "gone").remove()
        assert not (root / "gone").exists()
        assert root.names() == ["kept"]

    def test_a_name_cannot_lead_out(self, root: Location) -> None:
        for name in ("..", "a/../../b", "/etc", ""):
            with pytest.raises(ValueError, match="inside"):
                root / name

    def test_it_survives_pickling(self, root: Location) -> None:
        (root / "file").write_bytes(b"x")
        assert pickle.loads(pickle.dumps(root / "file")).read_bytes() == b"x"

    def test_zarr_reads_and_writes_in_it(self, root: Location) -> None:
        values = np.arange(12.0).reshape(3, 4)
        group = zarr.open_group((root / "g.zarr").zarr_store(), mode="a")
        group.create_array("u", data=values, chunks=(1, 4))
        again = zarr.open_group((root / "g.zarr").zarr_store(read_only=True), mode="r")
        np.testing.assert_array_equal(again["u"][...], values)

    def test_writable_places_are_accepted_and_left_clean(self, root: Location) -> None:
        root.require_writable()
        assert root.names() == []


class TestFolder(LocationContract):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Location:
        return Location.parse(str(tmp_path / "root"))

    def test_a_failed_write_leaves_the_old_content_and_no_litter(
        self, root: Location, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "file").write_bytes(b"old")

        def fail(_descriptor: int) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            (root / "file").write_bytes(b"new")
        assert (root / "file").read_bytes() == b"old"
        assert root.names() == ["file"]

    def test_a_file_where_the_root_should_be_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("not a folder")
        with pytest.raises(StoreUnavailable, match=r"cannot write in the store .*taken.*LSM_STORE"):
            Location.parse(str(tmp_path / "taken")).require_writable()


class TestMemory(LocationContract):
    @pytest.fixture
    def root(self) -> Location:
        return Location.parse(f"memory://{uuid4().hex}")


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"ftp://.*s3://"):
        Location.parse("ftp://somewhere/else")
