"""Who is champion, since when and why, as the store keeps it."""

import threading
from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.location import Location
from storage.tracking.model_record import Change, ModelRecord

NAME = "lsm-darcy"


@pytest.fixture
def record(tmp_path: Path) -> ModelRecord:
    return ModelRecord(Location.parse(str(tmp_path)))


def test_what_holds_is_all_changes_taken_together(record: ModelRecord) -> None:
    versions = [record.add(NAME, {"identity": each, "error": "1"}) for each in ("a", "b", "a")]
    assert [version.number for version in versions] == [1, 2, 1]
    record.note(NAME, Change(aliases={"champion": 1, "challenger": 2}, reason="the first", at=5))
    record.note(NAME, Change(versions={2: {"judged": "yes"}}, tags={"locked": "x"}))
    record.note(NAME, Change(aliases={"champion": 2, "challenger": None}, reason="better", at=9))
    state = record.state(NAME)
    assert state.versions == {
        1: {"identity": "a", "error": "1"},
        2: {"identity": "b", "error": "1", "judged": "yes"},
    }
    assert (state.aliases, state.tags) == ({"champion": 2}, {"locked": "x"})
    assert record.names() == [NAME]
    champions = [
        (change.at, change.aliases["champion"], change.reason)
        for change in record.history(NAME)
        if "champion" in change.aliases
    ]
    assert champions == [(5, 1, "the first"), (9, 2, "better")]


def test_what_is_so_already_adds_no_change(record: ModelRecord) -> None:
    for _ in range(2):
        record.add(NAME, {"identity": "a"})
        record.note(NAME, Change(aliases={"champion": 1}))
    assert len(record.history(NAME)) == 2


def test_those_who_register_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    def add(identity: str) -> None:
        ModelRecord(Location.parse(str(tmp_path))).add(NAME, {"identity": identity})

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = ModelRecord(Location.parse(str(tmp_path))).state(NAME).versions
    assert sorted(versions) == [1, 2, 3]
    assert sorted(tags["identity"] for tags in versions.values()) == ["a", "b", "c"]


def test_a_part_of_a_file_is_not_read_and_a_damaged_one_is_said(
    record: ModelRecord, tmp_path: Path
) -> None:
    record.add(NAME, {"identity": "a"})
    folder = tmp_path / "registered" / NAME
    (folder / ".000002.json.abc.partial").write_text('{"at')
    assert len(record.history(NAME)) == 1
    (folder / "000002.json").write_text("[]")
    with pytest.raises(StoreUnavailable, match="is no record of registered models"):
        record.state(NAME)
