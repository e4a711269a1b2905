import dataclasses
import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request
from uuid import uuid4

import fsspec
import numpy as np
import pytest

from storage.errors import DownloadFailed, PublishedFileInvalid, StoreUnavailable
from storage.location import Location
from storage.official.catalogue import Archive, PublishedBenchmark
from storage.official.download import (
    download_published,
    extract_member,
    raw_location,
    read_record,
)
from storage.official.transfer import Patience, Unavailable, _NoDowngrade
from tests.storage.official.small_files import raw_arrays, small_benchmark, write_official
from tests.storage.official.unreliable_server import PAGE, Server, unreliable_server

PATIENT = Patience(first_wait=0.0)
HASTY = Patience(attempts=1, first_wait=0.0)
PIPE = "pipe/Pipe_Q.npy"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_official(raw_arrays("pipe"), tmp_path / "mirror" / "pipe")
    with unreliable_server(tmp_path / "mirror") as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(str(tmp_path / "store"))


@pytest.fixture
def pipe(server: Server) -> PublishedBenchmark:
    """Return small pipe data whose only address is the server."""
    benchmark = small_benchmark("pipe")
    files = (replace(file, urls=(f"{server.url}/pipe/{file.path}",)) for file in benchmark.files)
    return replace(benchmark, files=tuple(files))


def with_hashes(benchmark: PublishedBenchmark, folder: Path) -> PublishedBenchmark:
    files = (
        replace(file, sha256=hashlib.sha256((folder / file.path).read_bytes()).hexdigest())
        for file in benchmark.files
    )
    return replace(benchmark, files=tuple(files))


def contents(root: Location, folder: str = "raw/pipe") -> dict[str, bytes]:
    assert root.local_path is not None
    top = root.local_path / folder
    return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}


def originals(server: Server) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (server.folder / "pipe").iterdir()}


def test_files_arrive_with_their_locks_and_nothing_else(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    places = download_published(pipe, root)
    assert contents(root) == originals(server)
    assert [place.name for place in places] == ["Pipe_X.npy", "Pipe_Y.npy", "Pipe_Q.npy"]
    record = read_record(pipe, pipe.files[2], root)
    content = originals(server)["Pipe_Q.npy"]
    assert record is not None
    assert (record.sha256, record.n_bytes, record.url) == (
        hashlib.sha256(content).hexdigest(),
        len(content),
        f"{server.url}/{PIPE}",
    )
    assert contents(root, "raw/incoming") == {}


def test_files_that_are_there_are_not_asked_for_again(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    download_published(pipe, root)
    server.requests.clear()
    download_published(pipe, root)
    assert server.requests == []


def test_a_cut_download_goes_on_where_it_was_cut(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["cut", "cut", "cut"]
    download_published(pipe, root, patience=PATIENT)
    assert contents(root) == originals(server)
    size = len(originals(server)["Pipe_Q.npy"])
    starts = [request.first_byte for request in server.asked_for(PIPE)]
    half = size // 2
    quarter = half + (size - half) // 2
    assert starts[:3] == [None, half, quarter]
    assert {request.status for request in server.asked_for(PIPE)[1:]} == {206}


def test_another_process_goes_on_where_the_last_one_was_killed(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["cut", "busy", "busy"]
    with pytest.raises(DownloadFailed, match="503"):
        download_published(pipe, root, patience=HASTY)
    assert set(contents(root)) == {"Pipe_X.npy", "Pipe_Y.npy"}
    server.faults.clear()
    server.requests.clear()
    download_published(pipe, root)
    assert contents(root) == originals(server)
    assert [(r.path, r.status) for r in server.requests] == [(PIPE, 206)]


def test_a_file_that_changed_meanwhile_is_fetched_from_its_start(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["cut", "busy", "busy"]
    with pytest.raises(DownloadFailed):
        download_published(pipe, root, patience=HASTY)
    write_official(raw_arrays("pipe", seed=1), server.folder / "pipe")
    download_published(pipe, root, patience=PATIENT)
    assert contents(root)["Pipe_Q.npy"] == originals(server)["Pipe_Q.npy"]
    assert server.asked_for(PIPE)[-1].status == 200


def test_a_part_longer_than_the_file_is_thrown_away(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["cut", "busy", "busy"]
    with pytest.raises(DownloadFailed):
        download_published(pipe, root, patience=HASTY)
    assert root.local_path is not None
    (part,) = (root.local_path / "raw" / "incoming").rglob("Pipe_Q*.part")
    part.write_bytes(bytes(10**6))
    download_published(pipe, root, patience=PATIENT)
    assert contents(root) == originals(server)
    assert [request.status for request in server.asked_for(PIPE)[-2:]] == [416, 200]


def test_a_server_that_ignores_ranges_still_gives_the_file(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["cut", "ignore range, cut", "no etag", "ignore range"]
    download_published(pipe, root, patience=PATIENT)
    assert contents(root) == originals(server)


def test_error_pages_are_recognised_and_never_kept(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["page"] * 3
    with pytest.raises(DownloadFailed) as caught:
        download_published(pipe, root, patience=Patience(attempts=3, first_wait=0.0))
    assert "a page was sent instead of data: 'Quota exceeded' (3 attempts)" in str(caught.value)
    assert "pipe/Pipe_Q.npy could not be had" in str(caught.value)
    everything = contents(root, "raw")
    assert not any(PAGE[:20] in content for content in everything.values())
    # The other files were still brought.
    assert {"pipe/Pipe_X.npy", "pipe/Pipe_Y.npy"} <= set(everything)


def test_a_page_in_the_middle_of_a_download_does_not_spoil_the_part(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["cut", "page", "cut"]
    download_published(pipe, root, patience=PATIENT)
    assert contents(root) == originals(server)
    assert [r.status for r in server.asked_for(PIPE)] == [200, 200, 206, 206]


def test_a_file_with_a_wrong_hash_is_not_kept_and_the_next_address_asked(
    pipe: PublishedBenchmark, server: Server, root: Location, tmp_path: Path
) -> None:
    known = with_hashes(pipe, server.folder / "pipe")
    write_official(raw_arrays("pipe", seed=9), tmp_path / "mine")
    download_published(known, root, [str(tmp_path / "mine")])
    assert contents(root) == originals(server)
    wrong = (tmp_path / "mine" / "Pipe_Q.npy").read_bytes()
    assert wrong not in contents(root, "raw").values()


def test_a_wrong_hash_everywhere_is_said(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    known = with_hashes(pipe, server.folder / "pipe")
    write_official(raw_arrays("pipe", seed=9), server.folder / "pipe")
    with pytest.raises(DownloadFailed) as caught:
        download_published(known, root)
    assert f"expected {known.files[2].sha256} (the published one); it was not kept" in str(
        caught.value
    )
    assert contents(root) == {}
    assert contents(root, "raw/incoming") == {}


def test_the_first_download_locks_the_hash_of_a_file_without_one(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    first = contents_of_download(pipe, root)
    raw_location(pipe, pipe.files[2], root).remove()
    write_official(raw_arrays("pipe", seed=3), server.folder / "pipe")
    with pytest.raises(DownloadFailed, match=r"that of the first download, locked in .*Pipe_Q"):
        download_published(pipe, root)
    np.save(server.folder / PIPE, raw_arrays("pipe")["Pipe_Q.npy"][""])
    assert contents_of_download(pipe, root) == first


def contents_of_download(pipe: PublishedBenchmark, root: Location) -> dict[str, bytes]:
    download_published(pipe, root)
    return contents(root)


def test_a_file_of_another_shape_is_not_locked(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    np.save(server.folder / PIPE, np.zeros((4, 4)))
    with pytest.raises(DownloadFailed, match=r"has shape \(4, 4\), expected \(30, 3, 9, 11\)"):
        download_published(pipe, root)
    assert read_record(pipe, pipe.files[2], root) is None


def test_a_truncated_file_in_the_store_is_fetched_again(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    download_published(pipe, root)
    place = raw_location(pipe, pipe.files[2], root)
    place.write_bytes(place.read_bytes()[:200])
    download_published(pipe, root)
    assert contents(root) == originals(server)


def test_a_file_put_in_place_by_hand_is_taken_as_it_is(server: Server, root: Location) -> None:
    benchmark = small_benchmark("pipe")
    assert root.local_path is not None
    write_official(raw_arrays("pipe"), root.local_path / "raw" / "pipe")
    download_published(benchmark, root)
    assert contents(root) == originals(server)
    assert read_record(benchmark, benchmark.files[0], root) is not None
    assert server.requests == []


@pytest.mark.parametrize("layout", ["elasticity/Meshes", "Meshes"])
def test_mirrors_come_first_with_the_folder_of_the_released_code_or_without(
    layout: str, tmp_path: Path, root: Location
) -> None:
    for path, arrays in raw_arrays("elasticity_p").items():
        target = tmp_path / "mine" / layout / path.rsplit("/", 1)[-1]
        target.parent.mkdir(parents=True, exist_ok=True)
        np.save(target, arrays[""])
    (tmp_path / "empty").mkdir()
    mirrors = [str(tmp_path / "empty"), str(tmp_path / "mine")]
    download_published(small_benchmark("elasticity_p"), root, mirrors)
    assert len(contents(root, "raw/elasticity/Meshes")) == 3


def test_a_mirror_may_be_any_filesystem(root: Location) -> None:
    folder = uuid4().hex
    filesystem = fsspec.filesystem("memory")
    for path, arrays in raw_arrays("pipe").items():
        with filesystem.open(f"/{folder}/{path}", "wb") as file:
            np.save(file, arrays[""])
    download_published(small_benchmark("pipe"), root, [f"memory://{folder}"])
    assert len(contents(root)) == 3


def test_an_unknown_kind_of_mirror_is_refused(root: Location) -> None:
    with pytest.raises(ValueError, match="ftp://, which is not known"):
        download_published(small_benchmark("pipe"), root, ["ftp://example.org"])


def zipped(benchmark: PublishedBenchmark, folder: Path, **known: Any) -> PublishedBenchmark:
    """Put all files of a benchmark into one archive in a folder, and say so in the catalogue."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = folder / "raw"
    write_official(raw_arrays(benchmark.name), raw)
    with zipfile.ZipFile(folder / "Darcy_421.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in raw.iterdir():
            archive.write(path, f"Darcy/{path.name}")
    packed = Archive(name="Darcy_421.zip", urls=("https://unused.invalid/",), **known)
    files = tuple(replace(file, archive=packed) for file in benchmark.files)
    return replace(benchmark, files=files)


def test_one_archive_gives_all_its_files_and_is_fetched_once(
    tmp_path: Path, root: Location
) -> None:
    benchmark = zipped(small_benchmark("darcy"), tmp_path / "zips")
    with unreliable_server(tmp_path / "zips") as server:
        server.faults["Darcy_421.zip"] = ["page", "cut", "busy"]
        download_published(benchmark, root, [server.url], patience=PATIENT)
        answers = [request.status for request in server.asked_for("Darcy_421.zip")]
    assert answers == [200, 200, 503, 206]
    raw = tmp_path / "zips" / "raw"
    assert contents(root, "raw/darcy") == {path.name: path.read_bytes() for path in raw.iterdir()}
    assert contents(root, "raw/incoming") == {}


def test_an_archive_with_a_wrong_hash_is_not_kept(tmp_path: Path, root: Location) -> None:
    benchmark = zipped(small_benchmark("darcy"), tmp_path / "zips", sha256="0" * 64)
    benchmark = replace(
        benchmark,
        files=tuple(
            replace(file, archive=replace(file.archive, urls=()))
            for file in benchmark.files
            if file.archive
        ),
    )
    with pytest.raises(DownloadFailed, match=f"expected {'0' * 64}"):
        download_published(benchmark, root, [str(tmp_path / "zips")])
    assert contents(root, "raw/incoming") == {}


def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(
    pipe: PublishedBenchmark, server: Server, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = dataclasses.make_dataclass("Usage", ["free"])
    monkeypatch.setattr("storage.location.shutil.disk_usage", lambda _: usage(3 * 10**9))
    large = replace(pipe, files=tuple(replace(f, n_bytes=2 * 10**9) for f in pipe.files))
    with pytest.raises(StoreUnavailable, match=r"needs 6\.00 GB but .* has 3\.00 GB free"):
        download_published(large, root)
    assert server.requests == []


def test_a_missing_file_is_not_asked_for_twice(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    server.faults[PIPE] = ["gone"]
    with pytest.raises(DownloadFailed) as caught:
        download_published(pipe, root, patience=PATIENT)
    assert f"{server.url}/{PIPE}: not there" in str(caught.value)
    assert "in LSM_MIRRORS, or with `lsm prepare --from`" in str(caught.value)
    assert len(server.asked_for(PIPE)) == 1


def test_a_host_that_does_not_answer_is_left_for_the_next(server: Server, root: Location) -> None:
    benchmark = small_benchmark("pipe")
    # Port 1 of this machine: nothing listens there.
    files = (
        replace(f, urls=(f"http://127.0.0.1:1/{f.path}", f"{server.url}/pipe/{f.path}"))
        for f in benchmark.files
    )
    download_published(replace(benchmark, files=tuple(files)), root)
    assert contents(root) == originals(server)


def test_progress_ends_at_the_size_of_each_file(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    reports: list[tuple[str, int, int, str]] = []
    download_published(pipe, root, report=lambda *report: reports.append(report))
    for name, content in originals(server).items():
        size = len(content)
        mine = [report[1:] for report in reports if report[0] == name]
        assert mine[-1] == (size, size, "complete")
        assert [done for done, _, _ in mine] == sorted(done for done, _, _ in mine)
    reports.clear()
    download_published(pipe, root, report=lambda *report: reports.append(report))
    assert {note for *_, note in reports} == {"there already"}


def test_two_downloads_at_once_fetch_every_file_once(
    pipe: PublishedBenchmark, server: Server, root: Location
) -> None:
    threads = [threading.Thread(target=download_published, args=(pipe, root)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(root) == originals(server)
    assert len(server.requests) == 3


def test_a_lock_that_cannot_be_read_is_named(pipe: PublishedBenchmark, root: Location) -> None:
    download_published(pipe, root)
    (root / "raw" / "lock" / "pipe" / "Pipe_Q.npy.json").write_bytes(b"{")
    with pytest.raises(DownloadFailed, match=r"Pipe_Q\.npy\.json cannot be read"):
        download_published(pipe, root)


def test_the_lock_is_plain_json(pipe: PublishedBenchmark, root: Location) -> None:
    download_published(pipe, root)
    lock = json.loads((root / "raw" / "lock" / "pipe" / "Pipe_X.npy.json").read_bytes())
    assert set(lock) == {"sha256", "n_bytes", "url"}


def test_waits_double_up_to_the_longest() -> None:
    patience = Patience(first_wait=1.0, longest_wait=10.0)
    assert [patience.wait(n) for n in range(6)] == [1, 2, 4, 8, 10, 10]


def test_https_is_never_left_for_http() -> None:
    redirect = _NoDowngrade()
    secure = Request("https://example.org/a")
    with pytest.raises(Unavailable, match="redirected from https to http://example"):
        redirect.redirect_request(secure, None, 302, "Found", {}, "http://example.org/a")
    followed = redirect.redirect_request(
        secure, None, 302, "Found", {}, "https://cdn.example.org/a"
    )
    assert followed is not None
    assert followed.full_url == "https://cdn.example.org/a"


def packed(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_member_is_found_in_any_folder(tmp_path: Path) -> None:
    members = {
        "Darcy/readme.txt": b"no",
        "Darcy/data.mat": b"yes" * 1000,
        "__MACOSX/._data.mat": b"",
    }
    archive = packed(tmp_path / "a.zip", members)
    extract_member(archive, "data.mat", tmp_path / "target.mat")
    assert (tmp_path / "target.mat").read_bytes() == b"yes" * 1000


@pytest.mark.parametrize(
    "name", ["../data.mat", "/etc/data.mat", "a/../../data.mat", "../../other.mat"]
)
def test_a_member_that_leads_out_of_its_folder_writes_nothing_there(
    name: str, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    archive = packed(inside / "a.zip", {name: b"evil"})
    extract_member(archive, name.rsplit("/", 1)[-1], inside / "target.mat")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["inside", "a.zip", "target.mat"]


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({"other.mat": b""}, "0 files named data.mat, expected one; it holds other.mat"),
        ({"a/data.mat": b"", "b/data.mat": b""}, "2 files named data.mat"),
    ],
)
def test_exactly_one_member_must_have_the_name(
    members: dict[str, bytes], found: str, tmp_path: Path
) -> None:
    archive = packed(tmp_path / "a.zip", members)
    with pytest.raises(PublishedFileInvalid, match=found):
        extract_member(archive, "data.mat", tmp_path / "data.mat")


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_archive_leaves_nothing_behind(damage: str, tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.zip", {"data.mat": bytes(range(256)) * 400})
    content = bytearray(archive.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    else:
        content[60] ^= 0xFF
    archive.write_bytes(content)
    with pytest.raises(PublishedFileInvalid, match=r"a\.zip does not give data\.mat"):
        extract_member(archive, "data.mat", tmp_path / "data.mat")
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_what_does_not_fit_on_the_disk_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(tmp_path / "a.zip", {"data.mat": bytes(10**6)})
    usage = dataclasses.make_dataclass("Usage", ["free"])
    monkeypatch.setattr("storage.location.shutil.disk_usage", lambda _: usage(10**5))
    with pytest.raises(StoreUnavailable, match=r"unpacking data\.mat needs 0\.00 GB"):
        extract_member(archive, "data.mat", tmp_path / "data.mat")
