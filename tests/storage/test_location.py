"""The contract of a location, run over every kind of store."""

import logging
import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import zarr

from storage.datasets.reader import open_dataset
from storage.errors import DatasetIncomplete, StoreInterrupted, StoreUnavailable
from storage.location import PART_BYTES, Location
from storage.runs.checkpoints import Checkpoints
from tests.storage.datasets.small import job, small_block, small_schema, write_whole
from tests.storage.interrupted_network import Network, interrupted_network
from tests.storage.s3_servers import (
    BUCKET,
    SECRET,
    S3Server,
    client_environment,
    in_use,
    moto_server,
    rclone_server,
)


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

    def test_a_dataset_is_whole_only_with_its_mark(self, root: Location) -> None:
        place, schema = root / "d.zarr", small_schema()
        job(place, schema).begin()
        for index in reversed(range(schema.n_blocks)):
            job(place, schema).write_block(index, small_block(schema, index))
        with pytest.raises(DatasetIncomplete):
            open_dataset(place)
        assert job(place, schema).missing_blocks() == []
        job(place, schema).finish()
        part = open_dataset(place).part("train", ["after"])
        np.testing.assert_array_equal(part[4:7]["after"], small_block(schema, 1)["after"][:3])
        assert root.names() == ["d.zarr"]

    def test_checkpoints_come_back(self, root: Location) -> None:
        checkpoints = Checkpoints(root / "run")
        for step in (1, 2, 3):
            checkpoints.save(step, b"state %d" % step)
        checkpoints.write_result({"error": 0.1})
        again = Checkpoints(root / "run")
        assert (again.latest(), again.result()) == (b"state 3", {"error": 0.1})
        (root / "run" / "00000003.checkpoint").write_bytes(b"damaged")
        assert again.latest() == b"state 2"


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
        with pytest.raises(StoreUnavailable, match=r"cannot write .*file: disk full"):
            (root / "file").write_bytes(b"new")
        assert (root / "file").read_bytes() == b"old"
        assert root.names() == ["file"]

    def test_a_file_is_written_while_another_removes_its_folder(
        self, root: Location, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make, late = Path.mkdir, iter([True])

        def removed_at_once(self: Path, *arguments: Any, **more: Any) -> None:
            make(self, *arguments, **more)
            if next(late, False):
                self.rmdir()

        monkeypatch.setattr(Path, "mkdir", removed_at_once)
        (root / "records" / "file").write_bytes(b"1")
        assert (root / "records" / "file").read_bytes() == b"1"

    def test_a_folder_in_which_another_still_writes_is_removed_all_the_same(
        self, root: Location, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "gone" / "file").write_bytes(b"1")
        remove, late = os.rmdir, iter([True])

        def somebody_was_quicker(path: str, **more: Any) -> None:
            if next(late, False):
                (root / "gone" / "another").write_bytes(b"2")
            remove(path, **more)

        monkeypatch.setattr(os, "rmdir", somebody_was_quicker)
        (root / "gone").remove()
        assert root.names() == []

    def test_a_file_where_the_root_should_be_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("not a folder")
        with pytest.raises(StoreUnavailable, match=r"cannot write in the store .*taken.*LSM_STORE"):
            Location.parse(str(tmp_path / "taken")).require_writable()


class TestMemory(LocationContract):
    @pytest.fixture
    def root(self) -> Location:
        return Location.parse(f"memory://{uuid4().hex}")


# In one request, and in parts.
SIZES = [1000, pytest.param(2 * PART_BYTES + 1, marks=pytest.mark.slow)]


class S3Contract(LocationContract):
    """What holds for an object store, too: parts, retries, and a network that breaks down."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
        raise AssertionError("a kind of server starts itself")

    @pytest.fixture(scope="class")
    @classmethod
    def client(cls, server: S3Server) -> Iterator[None]:
        with in_use(server.environment):
            yield

    @pytest.fixture
    def root(self, server: S3Server, client: None) -> Location:
        return server.new_root()

    @pytest.fixture
    def network(self, server: S3Server) -> Iterator[Network]:
        with interrupted_network(server.port) as network:
            # One attempt of botocore; s3fs still makes five, within two seconds.
            settings = {**client_environment(network.endpoint), "AWS_MAX_ATTEMPTS": "1"}
            with in_use(settings):
                yield network

    def test_a_large_object_is_sent_in_parts(self, root: Location) -> None:
        content = np.random.default_rng(0).bytes(2 * PART_BYTES + 12345)
        (root / "large").write_bytes(content)
        assert (root / "large").read_bytes() == content
        (root / "large").write_bytes(b"small again")
        assert (root / "large").read_bytes() == b"small again"

    @pytest.mark.parametrize("n_bytes", SIZES)
    def test_a_cut_connection_is_tried_again(
        self, server: S3Server, network: Network, n_bytes: int
    ) -> None:
        root, content = server.new_root(), np.random.default_rng(1).bytes(n_bytes)
        network.cut_after = n_bytes // 2
        (root / "file").write_bytes(content)
        assert network.n_cuts == 1
        assert (root / "file").read_bytes() == content

    @pytest.mark.parametrize("n_bytes", SIZES)
    def test_a_write_that_breaks_down_leaves_the_old_content(
        self, server: S3Server, network: Network, n_bytes: int
    ) -> None:
        root = server.new_root()
        (root / "file").write_bytes(b"old")
        network.cut_after, network.cuts_again = n_bytes // 2, True
        with pytest.raises(StoreInterrupted, match=r"cannot write .*file.* trying again"):
            (root / "file").write_bytes(bytes(n_bytes))
        assert network.n_cuts >= 2
        network.cut_after = None
        assert (root / "file").read_bytes() == b"old"
        assert root.names() == ["file"]

    def test_a_dataset_cut_off_while_it_is_written_is_not_whole_and_continues(
        self, server: S3Server, network: Network
    ) -> None:
        place, schema = server.new_root() / "d.zarr", small_schema()
        job(place, schema).begin()
        job(place, schema).write_block(0, small_block(schema, 0))
        network.is_gone = True
        network.cut()
        with pytest.raises(StoreInterrupted):
            job(place, schema).write_block(1, small_block(schema, 1))
        with pytest.raises(StoreInterrupted, match=r"cannot write in the store .*LSM_STORE"):
            place.require_writable()
        network.is_gone = False
        assert job(place, schema).missing_blocks() == [1, 2, 3, 4]
        with pytest.raises(DatasetIncomplete):
            open_dataset(place)
        write_whole(place, schema)
        assert len(open_dataset(place).part("test", ["after"])[:]["after"]) == 4

    def test_a_bucket_that_is_not_there_is_said(self, root: Location) -> None:
        absent = Location.parse(f"s3://{BUCKET}-elsewhere/root")
        with pytest.raises(StoreUnavailable, match=r"cannot write in the store .*LSM_STORE"):
            absent.require_writable()


class TestRclone(S3Contract):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
        with rclone_server(tmp_path_factory.mktemp("rclone") / "buckets") as server:
            yield server

    # moto lets everyone in.
    def test_wrong_keys_are_refused_without_showing_them(
        self, server: S3Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        wrong = "another-secret-that-nobody-may-read"
        with (
            caplog.at_level(logging.DEBUG),
            in_use({**server.environment, "AWS_SECRET_ACCESS_KEY": wrong}),
            pytest.raises(StoreUnavailable, match="check the bucket, its keys") as refused,
        ):
            (server.new_root() / "file").write_bytes(b"x")
        whole = f"{refused.value!r} {refused.value.__cause__!r} {caplog.text}"
        assert wrong not in whole
        assert SECRET not in whole


@pytest.mark.slow
class TestMoto(S3Contract):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
        with moto_server(tmp_path_factory.mktemp("moto")) as server:
            yield server


@pytest.mark.parametrize("scheme", ["s3", "s3a", "https"])
@pytest.mark.parametrize("password", ["secret", "sec/ret", "sec?ret", "sec#ret", "s@c/ret"])
def test_an_address_with_a_password_is_refused_without_showing_it(
    scheme: str, password: str
) -> None:
    with pytest.raises(ValueError, match=f"{scheme}:// holds a password") as refused:
        Location.parse(f"{scheme}://key:{password}@bucket/root")
    assert not re.search("key|sec|ret|bucket", str(refused.value).replace("credentials", ""))


@pytest.mark.parametrize(
    "address",
    [
        "abfs://container@account/root",
        "s3://bucket/runs/me@work",
        "s3://bucket/12:30@noon",
        "http://host:9000/root@2",
        "http://[::1]:9000/root@2",
        "file:///srv/a:b@c",
    ],
)
def test_an_address_with_an_at_sign_elsewhere_is_taken(address: str) -> None:
    assert Location.parse(address).url == address


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"ftp://.*s3://"):
        Location.parse("ftp://somewhere/else")
