"""Who is champion, since when and why, as the store keeps it."""

import json
import threading
from pathlib import Path
from typing import get_args

import pytest

from lsm_core.names import PresetName
from storage.errors import StoreUnavailable
from storage.location import Location
from storage.tracking.model_record import ModelRecord
from storage.tracking.model_state import LOCKED, SIZES, Change

NAME = "pde-darcy"


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
    assert (state.aliases, state.tags) == ({"champion": 2, "previous": 1}, {"locked": "x"})
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


def test_presets_are_ordered_by_size_as_they_are_named() -> None:
    assert get_args(PresetName) == SIZES


def with_versions(record: ModelRecord, *leagues: tuple[str, str]) -> None:
    for number, (preset, origin) in enumerate(leagues):
        record.add(NAME, {"identity": str(number), "preset": preset, "origin": origin})


def test_each_preset_and_kind_of_data_has_a_champion_and_the_largest_is_the_champion(
    record: ModelRecord,
) -> None:
    quick, paper = ("quick", "generated"), ("paper", "official")
    with_versions(record, quick, paper, quick, ("smoke", "generated"))
    for number in (1, 2, 3, 4):
        record.note(NAME, Change(aliases={"champion": number}, tags={LOCKED: f"of {number}"}))
    state = record.state(NAME)
    assert state.aliases == {
        "champion": 2,
        "champion-paper-official": 2,
        "champion-quick": 3,
        "champion-smoke": 4,
    }
    assert state.locked == {"quick": "of 3", "paper-official": "of 2", "smoke": "of 4"}
    leagues = [turn.league for turn in record.turns(NAME)]
    assert leagues == ["quick", "paper-official", "quick", "smoke"]


def test_rolling_back_goes_one_champion_further_each_time_and_nothing_is_forgotten(
    record: ModelRecord,
) -> None:
    with_versions(record, *[("quick", "generated")] * 3)
    for number in (1, 2, 3):
        record.note(NAME, Change(aliases={"champion": number}, verdict="Promoted", reason="better"))
    for number in (2, 1):
        change = Change(aliases={"champion": number}, verdict="RolledBack", reason="it was bad")
        record.note(NAME, change)
    state = record.state(NAME)
    assert state.aliases == {"champion": 1, "champion-quick": 1}
    told = [(turn.verdict, turn.before, turn.after) for turn in record.turns(NAME)]
    assert told == [
        ("Promoted", None, 1),
        ("Promoted", 1, 2),
        ("Promoted", 2, 3),
        ("RolledBack", 3, 2),
        ("RolledBack", 2, 1),
    ]


def test_a_verdict_that_changes_nothing_is_noted_once_with_its_figures(record: ModelRecord) -> None:
    with_versions(record, *[("quick", "generated")] * 2)
    record.note(NAME, Change(aliases={"champion": 1}))
    for _ in range(2):
        kept = Change(verdict="Kept", challenger=2, reason="not better", figures={"p_value": 0.5})
        record.note(NAME, kept)
    first, second = record.turns(NAME)
    assert (first.verdict, second.verdict) == ("First", "Kept")
    assert (second.before, second.after, second.challenger) == (1, 1, 2)
    assert (second.reason, second.figures) == ("not better", {"p_value": 0.5})


def test_a_version_that_is_retired_leaves_its_number_and_one_in_use_is_not(
    record: ModelRecord,
) -> None:
    with_versions(record, *[("quick", "generated")] * 4)
    for number in (1, 2, 3):
        record.note(NAME, Change(aliases={"champion": number}))
    for number in (2, 3):
        with pytest.raises(ValueError, match=f"{NAME}/{number} is in use and stays registered"):
            record.note(NAME, Change(retired=(number,)))
    record.note(NAME, Change(retired=(1, 4), reason="to make room"))
    state = record.state(NAME)
    assert (sorted(state.versions), state.retired) == ([2, 3], {1, 4})
    assert record.add(NAME, {"identity": "new"}).number == 5
    assert len(record.turns(NAME)) == 3


def test_what_was_noted_under_the_earlier_name_comes_first(
    record: ModelRecord, tmp_path: Path
) -> None:
    changes: list[dict[str, object]] = [
        {"versions": {"1": {"identity": "a", "preset": "smoke", "origin": "generated"}}},
        {"aliases": {"champion": 1}, "tags": {LOCKED: "old"}, "reason": "the first champion"},
        {"versions": {"2": {"identity": "b", "preset": "quick", "origin": "generated"}}},
        {"aliases": {"champion": 2}, "tags": {LOCKED: "new"}, "reason": "promoted by hand"},
    ]
    folder = tmp_path / "registered" / "lsm-darcy"
    folder.mkdir(parents=True)
    whole = {"versions": {}, "aliases": {}, "tags": {}, "reason": ""}
    for number, change in enumerate(changes, 1):
        content = json.dumps({**whole, **change, "at": number})
        (folder / f"{number:06d}.json").write_text(content)
    assert record.names() == ["pde-darcy"]
    assert record.state(NAME).aliases == {"champion": 2, "champion-smoke": 1, "champion-quick": 2}
    assert record.state(NAME).locked == {"smoke": "old", "quick": "new"}
    assert record.add(NAME, {"identity": "c"}).number == 3
    assert (tmp_path / "registered" / "pde-darcy" / "000005.json").exists()
    told = [(turn.at, turn.verdict) for turn in record.turns(NAME)]
    assert told == [(2, "First"), (4, "First")]
