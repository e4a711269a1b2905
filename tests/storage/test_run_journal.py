import json
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

from storage.run_journal import Heading, Journal, journals, without_credentials

processes = multiprocessing.get_context("forkserver")


def heading(identity: str = "a run", uri: str = "http://127.0.0.1:5000") -> Heading:
    return Heading(
        uri=uri,
        experiment="tests",
        artifacts="file:///nowhere",
        identity=identity,
        name="a name",
        tags={"suite": "tests"},
        started=1000,
    )


def journal(folder: Path) -> Journal:
    return Journal(folder / heading().file_name, heading())


def metrics(step: int) -> dict[str, object]:
    return {"step": step, "metrics": {"loss": float(step)}, "at": step}


def steps(journal: Journal) -> list[int]:
    journal.read()
    return [entry.content["step"] for entry in journal.waiting]


def test_what_was_appended_waits_in_order_for_any_reader(tmp_path: Path) -> None:
    writer = journal(tmp_path)
    writer.append(metrics(1), metrics(2))
    reader = Journal(writer.path)
    assert steps(reader) == [1, 2]
    assert reader.heading == heading()
    writer.append(metrics(3))
    assert steps(reader) == [1, 2, 3]
    assert reader.last_steps == {"loss": 3}
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600


def test_what_was_sent_does_not_wait_any_more(tmp_path: Path) -> None:
    writer = journal(tmp_path)
    writer.append(*(metrics(step) for step in range(4)))
    sender = Journal(writer.path)
    sender.read()
    sender.note_sent(sender.waiting[1], "run 1")
    writer.append(metrics(4))
    for reader in (sender, writer, Journal(writer.path)):
        assert steps(reader) == [2, 3, 4]
        assert reader.run_id == "run 1"


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    writer = journal(tmp_path)
    writer.append(metrics(1), metrics(2))
    whole = writer.path.read_bytes()
    line = len(whole.splitlines()[-1]) + 1
    for missing in range(1, line):
        writer.path.write_bytes(whole[:-missing])
        again = journal(tmp_path)
        assert steps(again) == [1]
        again.append(metrics(3))
        assert steps(again) == [1, 3]
        again.close()


def test_a_torn_first_line_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / heading().file_name).write_bytes(b'{"version": 1, "ur')
    begun = journal(tmp_path)
    begun.append(metrics(1))
    assert steps(begun) == [1]
    assert Journal(begun.path).heading is None
    assert next(journals(tmp_path)).heading == heading()


def test_a_damaged_line_is_an_entry_that_cannot_be_read(tmp_path: Path) -> None:
    writer = journal(tmp_path)
    writer.append(metrics(1))
    with writer.path.open("ab") as file:
        file.write(b'{"step": 2, "met\xff\n')
    writer.append(metrics(3))
    writer.read()
    assert [entry.kind for entry in writer.waiting] == ["metrics", "unreadable", "metrics"]


def test_only_a_journal_that_has_ended_and_was_sent_is_removed(tmp_path: Path) -> None:
    held = journal(tmp_path)
    held.append({"status": "RUNNING", "at": 1}, metrics(1))
    held.append_file("figures/curve.svg", b"<svg/>", at=1)
    held.read()
    held.note_sent(held.waiting[-1], "run 1")
    assert not held.remove_if_ended()  # it has not ended
    held.append({"status": "FINISHED", "at": 1})
    assert not held.remove_if_ended()  # nobody has sent the end
    held.note_sent(held.waiting[-1], "run 1")
    held.append({"status": "RUNNING", "at": 1})
    held.read()
    held.note_sent(held.waiting[-1], "run 1")
    assert not held.remove_if_ended()  # it was taken up again
    held.append({"status": "FAILED", "at": 1})
    held.read()
    held.note_sent(held.waiting[-1], "run 1")
    with held.sending() as is_ours:
        assert is_ours
        assert held.remove_if_ended()
    assert list(tmp_path.iterdir()) == []


def test_a_removed_journal_is_begun_anew_by_who_still_writes(tmp_path: Path) -> None:
    writer, sender = journal(tmp_path), Journal(tmp_path / heading().file_name)
    writer.append(metrics(1))
    sender.read()
    sender.note_sent(sender.waiting[-1], "run 1")
    assert sender.remove_if_ended()
    writer.append(metrics(2))
    assert steps(Journal(writer.path)) == [2]
    assert steps(writer) == [2]
    assert steps(sender) == [2]


def test_what_was_refused_is_kept_under_another_name(tmp_path: Path) -> None:
    held = journal(tmp_path)
    held.append(metrics(1), {"status": "FINISHED"})
    held.read()
    held.note_sent(held.waiting[0], "run 1", refused="no such name")
    held.note_sent(held.waiting[0], "run 1")
    assert Journal(held.path).path == held.path
    assert held.remove_if_ended()
    assert held.refused == ["no such name"]
    (kept,) = tmp_path.iterdir()
    assert kept.suffix == ".refused"
    assert '"no such name"' in kept.read_text()
    assert list(journals(tmp_path)) == []


def test_a_rewound_journal_waits_from_its_beginning(tmp_path: Path) -> None:
    held = journal(tmp_path)
    held.append(metrics(1), metrics(2))
    held.read()
    held.note_sent(held.waiting[-1], "run 1")
    reader = Journal(held.path)
    assert steps(reader) == []
    held.rewind("run 2")
    held.append(metrics(3))
    for each in (held, reader, Journal(held.path)):
        assert steps(each) == [1, 2, 3]
        assert each.run_id == "run 2"
    held.note_sent(held.waiting[0], "run 2")
    for each in (held, reader, Journal(held.path)):
        assert steps(each) == [2, 3]


def test_the_right_to_send_is_one_holders(tmp_path: Path) -> None:
    first, second = journal(tmp_path), journal(tmp_path)
    first.append(metrics(1))
    with first.sending() as is_ours:
        assert is_ours
        with second.sending() as is_theirs:
            assert not is_theirs
    with second.sending() as is_theirs:
        assert is_theirs


def test_the_right_to_send_ends_with_its_process(tmp_path: Path) -> None:
    child = processes.Process(target=die_sending, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == -9
    with journal(tmp_path).sending() as is_ours:
        assert is_ours


def die_sending(folder: Path) -> None:
    with journal(folder).sending() as is_ours:
        assert is_ours
        os.kill(os.getpid(), 9)


def test_many_writers_mix_no_lines(tmp_path: Path) -> None:
    def write(first: int) -> None:
        own = journal(tmp_path)
        for step in range(first, first + 200):
            own.append(metrics(step))

    writers = [threading.Thread(target=write, args=(1000 * k,)) for k in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    (read,) = journals(tmp_path)
    found = [entry.content["step"] for entry in read.waiting]
    assert sorted(found) == [1000 * k + step for k in range(4) for step in range(200)]
    for k in range(4):
        assert [step for step in found if step // 1000 == k] == list(
            range(1000 * k, 1000 * k + 200)
        )


def test_a_run_has_one_journal_for_each_store(tmp_path: Path) -> None:
    names = {
        heading(identity, uri).file_name
        for identity in ("a run", "a-run", "another")
        for uri in ("http://127.0.0.1:5000", "http://127.0.0.1:5001", "sqlite:////tmp/a.db")
    }
    assert len(names) == 9
    assert heading(uri="http://me:secret@127.0.0.1:5000").file_name == heading().file_name


@pytest.mark.parametrize(
    ("uri", "bare"),
    [
        ("http://me:secret@host:5000/path", "http://host:5000/path"),
        ("https://token@host", "https://host"),
        ("http://me:p@ss@host/a@b", "http://host/a@b"),
        ("postgresql+psycopg2://me:secret@host/db", "postgresql+psycopg2://host/db"),
        ("postgresql://host/db?user=me&password=secret&ssl=1", "postgresql://host/db?ssl=1"),
        ("postgresql://me:p/w0rd@host:5432/db", "postgresql://host:5432/db"),
        ("s3://me:sec#ret@bucket/x and http://host:80/a@b", "s3://bucket/x and http://host:80/a@b"),
        ("http://[::1]:5000/a@b", "http://[::1]:5000/a@b"),
        ("sqlite:////home/me@work/mlflow.db", "sqlite:////home/me@work/mlflow.db"),
        ("request to http://me:secret@host/x failed", "request to http://host/x failed"),
    ],
)
def test_credentials_are_left_out(uri: str, bare: str) -> None:
    assert without_credentials(uri) == bare


def test_the_first_line_says_where_the_run_goes_and_no_password(tmp_path: Path) -> None:
    held = Journal(tmp_path / "x.jsonl", heading(uri="http://me:secret@host"))
    held.append(metrics(1))
    first = json.loads(held.path.read_text().splitlines()[0])
    assert first == {
        "version": 1,
        "uri": "http://host",
        "experiment": "tests",
        "artifacts": "file:///nowhere",
        "identity": "a run",
        "name": "a name",
        "tags": {"suite": "tests"},
        "started": 1000,
    }


@pytest.mark.parametrize(
    "line",
    [
        b'{"version": 1, "experiment": "without the rest"}',
        b'{"metrics": {"loss": "high"}, "step": 1, "at": 1}',
        b'{"metrics": {"loss": 0.1}, "at": 1}',
        b'{"file": "a.svg", "content": "../../secret", "at": 1}',
        b'{"status": 7, "at": 1}',
        b'{"sent": "all", "run": "run 1"}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_damaged_line_is_kept_and_never_taken_for_another(tmp_path: Path, line: bytes) -> None:
    held = journal(tmp_path)
    held.append(metrics(1))
    with held.path.open("ab") as file:
        file.write(line + b"\n")
    held.append(metrics(2))
    held.read()
    assert [entry.kind for entry in held.waiting] == ["metrics", "unreadable", "metrics"]
    assert held.last_steps == {"loss": 2}
