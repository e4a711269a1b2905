import dataclasses
import zipfile
from pathlib import Path

import pytest

from storage.errors import PublishedFileInvalid, StoreUnavailable
from storage.official.archives import extract_member


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
    monkeypatch.setattr("storage.disk_space.shutil.disk_usage", lambda _: usage(10**5))
    with pytest.raises(StoreUnavailable, match=r"unpacking data\.mat needs 0\.00 GB"):
        extract_member(archive, "data.mat", tmp_path / "data.mat")
