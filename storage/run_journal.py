"""The journal of a run: all that the tracking store is to have, kept here until it has it.

One file a run, one JSON object a line. The first line says where the run is recorded, so that any
process can send the rest: entries in their order, and between them notes of how far they were sent.

Two locks guard it. Writing takes the file's own for microseconds, so that several processes may
append. Sending takes that of the `.lock` file beside it for as long as a process sends, so that no
two do. Both end with their process, however it ends.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from storage.location import TORN_PASSWORD, Location

SUFFIX = ".jsonl"
KINDS = ("metrics", "parameters", "tags", "file", "status")


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The first line of a journal: which run it is, and where it is recorded."""

    uri: str
    experiment: str
    artifacts: str
    identity: str
    name: str
    tags: Mapping[str, str]
    started: int

    def __post_init__(self) -> None:
        # A journal lies in the open; whoever sends it knows the password, or is not to send it.
        object.__setattr__(self, "uri", without_credentials(self.uri))

    @property
    def file_name(self) -> str:
        """Return the name of the journal: readable, and its own for every run in every store."""
        key = json.dumps([self.uri, self.experiment, self.identity])
        readable = re.sub(r"[^A-Za-z0-9]+", "-", self.identity)[:40].strip("-")
        return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:16]}{SUFFIX}"


@dataclass(frozen=True)
class Entry:
    """One line for the tracking store, and the place in the file where it ends."""

    content: Mapping[str, Any]
    end: int

    @property
    def kind(self) -> str:
        """Return which of KINDS the line holds, or `unreadable`."""
        return next((kind for kind in KINDS if kind in self.content), "unreadable")


class Journal:
    """A hold on the journal of a run, to append to it and to read what waits in it.

    With a heading it is begun when something is appended; without one it must be there.
    """

    def __init__(self, path: Path, heading: Heading | None = None) -> None:
        self.path = path
        self.heading = heading
        self._mutex = threading.Lock()
        self._descriptor: int | None = None
        self._is_listed = False
        self._forget()

    def _forget(self) -> None:
        self.waiting: deque[Entry] = deque()
        self.run_id: str | None = None
        self.is_ended = True
        self.refused: list[str] = []
        self.last_steps: dict[str, int] = {}
        self._read_to = 0

    @property
    def files(self) -> Path:
        """Return the folder with the contents of attached files."""
        return self.path.with_suffix(".files")

    def append(self, *entries: Mapping[str, Any]) -> None:
        """Add lines at the end; a torn line that a killed process left there is cut off.

        If the journal was sent and removed meanwhile, a new one is begun.
        """
        with self._held(begin=True) as descriptor:
            self._write(descriptor, entries)

    def append_file(self, path: str, content: bytes, at: int) -> None:
        """Keep a file's content and add its line."""
        name = hashlib.sha256(content).hexdigest()
        with self._held(begin=True) as descriptor:
            self.files.mkdir(exist_ok=True)
            with (self.files / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._write(descriptor, [{"file": path, "content": name, "at": at}])

    def force_to_disk(self) -> None:
        """Return when all that was appended would survive a loss of power."""
        with self._mutex:
            if self._descriptor is not None:
                os.fsync(self._descriptor)
                if not self._is_listed:
                    _force_names_to_disk(self.path.parent)
                    self._is_listed = True

    def read(self) -> None:
        """Take in the lines added since the last reading; a line counts once it is whole."""
        with self._held() as descriptor:
            if descriptor is None:
                self._forget()
            else:
                self._take_in_new_lines(descriptor)

    def note_sent(self, entry: Entry, run_id: str, refused: str | None = None) -> None:
        """Note that the store has an entry and all before it, or refuses this one for good."""
        note: dict[str, Any] = {"sent": entry.end, "run": run_id}
        self._note(note if refused is None else {**note, "refused": refused})

    def rewind(self, run_id: str) -> None:
        """Let every entry wait again, for a store that has lost the run and begun another."""
        self._note({"rewound": True, "run": run_id})

    def remove_if_ended(self) -> bool:
        """Remove the journal if the run has ended and nothing waits; return whether it is gone.

        What the store refused is not thrown away: such a journal is kept under another name. Only
        who holds the right to send may call this.
        """
        with self._held() as descriptor:
            if descriptor is None:
                self._lock_file.unlink(missing_ok=True)
                return True
            self._take_in_new_lines(descriptor)
            if self.waiting or not self.is_ended:
                return False
            if self.refused:
                self.path.replace(self.path.with_suffix(f".{time.time_ns()}.refused"))
            else:
                shutil.rmtree(self.files, ignore_errors=True)
                self.path.unlink()
            self._lock_file.unlink(missing_ok=True)
            return True

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """Hold the right to send while the block runs; False if it is another's."""
        descriptor = _lock(self._lock_file)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._close()

    @property
    def _lock_file(self) -> Path:
        return self.path.with_suffix(".lock")

    @contextmanager
    def _held(self, *, begin: bool = False) -> Iterator[int | None]:
        """Hold the file against other writers; None if there is none and none is to be begun."""
        with self._mutex:
            while True:
                if self._descriptor is None and not self._open(begin):
                    yield None
                    return
                assert self._descriptor is not None
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                if _is_at(self.path, self._descriptor):
                    break
                # It was sent and removed, by this process or another one.
                self._close()
            try:
                yield self._descriptor
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _open(self, begin: bool) -> bool:
        try:
            flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if begin else 0)
            self._descriptor = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            if begin:
                raise
            return False
        self._is_listed = False
        self._forget()
        return True

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, descriptor: int | None, entries: Any) -> None:
        assert descriptor is not None
        lines = list(entries)
        if _cut_torn_line(descriptor) == 0:
            if self.heading is None:
                raise ValueError(f"{self.path} has no first line, and none was given")
            lines.insert(0, {"version": 1, **asdict(self.heading)})
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        while content:
            content = content[os.write(descriptor, content) :]

    def _note(self, note: Mapping[str, Any]) -> None:
        with self._held() as descriptor:
            if descriptor is not None:
                self._write(descriptor, [note])
                self._take_in_new_lines(descriptor)

    def _take_in_new_lines(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        lines = _whole_lines(os.pread(descriptor, size - self._read_to, self._read_to))
        rewound = max((i for i, (line, _) in enumerate(lines) if "rewound" in line), default=-1)
        if rewound >= 0 and self._read_to > 0:
            self._forget()
            self._take_in_new_lines(descriptor)
            return
        for index, (line, length) in enumerate(lines):
            self._read_to += length
            self._take_in(line, is_void=index < rewound)

    def _take_in(self, line: Mapping[str, Any], is_void: bool) -> None:
        """Take in a line; what was noted before the entries were made to wait again is void."""
        if "version" in line:
            self.heading = Heading(**{k: v for k, v in line.items() if k != "version"})
        elif "rewound" in line:
            self.run_id = line["run"]
        elif "sent" in line:
            if not is_void:
                self._take_note(line)
        else:
            entry = Entry(line, self._read_to)
            self.waiting.append(entry)
            if entry.kind == "status":
                self.is_ended = line["status"] != "RUNNING"
            for name in line.get("metrics", ()):
                self.last_steps[name] = max(line["step"], self.last_steps.get(name, line["step"]))

    def _take_note(self, note: Mapping[str, Any]) -> None:
        self.run_id = note["run"]
        while self.waiting and self.waiting[0].end <= note["sent"]:
            self.waiting.popleft()
        if "refused" in note:
            self.refused.append(note["refused"])


def journal_folder(root: Location) -> Path:
    """Return where runs on this machine keep what the tracking store does not have yet."""
    return (root.local_path or Path(".lsm").absolute()) / "journal"


def journals(folder: Path) -> Iterator[Journal]:
    """Yield the journals in a folder, each read, and closed after its turn."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        journal = Journal(path)
        journal.read()
        yield journal
        journal.close()


def without_credentials(text: str) -> str:
    """Return a URI, or a text with URIs, without the user names and passwords in them."""
    bare = re.sub(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@", "", TORN_PASSWORD.sub("", text))
    return re.sub(r"(?<=[?&])(user|username|password)=[^&#\s]*&?", "", bare)


def _whole_lines(content: bytes) -> list[tuple[Mapping[str, Any], int]]:
    """Return every line that has its end, read, and its length; a torn last one is left out."""
    return [(_parsed(line), len(line) + 1) for line in content.split(b"\n")[:-1]]


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(line)
        is_sound = isinstance(content, dict) and _is_sound(content)
    except (ValueError, RecursionError):
        is_sound = False
    return content if is_sound else {"unreadable": line.decode(errors="replace")}


def _is_sound(line: dict[str, Any]) -> bool:
    """Return whether a line is one that a journal writes; damaged ones are kept, but not sent."""
    if "version" in line:
        return _is_heading(line)
    if "rewound" in line or "sent" in line:
        return isinstance(line.get("run"), str) and isinstance(line.get("sent", 0), int)
    kinds = [kind for kind in KINDS if kind in line]
    if len(kinds) != 1 or not isinstance(line.get("at"), int):
        return False
    content = line[kinds[0]]
    if kinds == ["metrics"]:
        numbers = (int, float)
        is_filled = isinstance(content, dict) and isinstance(line.get("step"), int)
        return is_filled and all(isinstance(value, numbers) for value in content.values())
    if kinds == ["file"]:
        # The name of the content is its hash: no other file of this machine can be meant.
        is_hash = re.fullmatch("[0-9a-f]{64}", str(line.get("content")))
        return isinstance(content, str) and is_hash is not None
    return isinstance(content, str) if kinds == ["status"] else _holds_text(content)


def _is_heading(line: dict[str, Any]) -> bool:
    names = {field.name for field in fields(Heading)}
    texts = names - {"tags", "started"}
    return (
        line["version"] == 1
        and set(line) == {"version", *names}
        and all(isinstance(line[name], str) for name in texts)
        and isinstance(line["started"], int)
        and _holds_text(line["tags"])
    )


def _holds_text(content: Any) -> bool:
    return isinstance(content, dict) and all(isinstance(each, str) for each in content.values())


def _cut_torn_line(descriptor: int) -> int:
    """Cut off what follows the last line break, and return the size that is left."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    whole = os.pread(descriptor, size, 0).rfind(b"\n") + 1
    os.ftruncate(descriptor, whole)
    return whole


def _force_names_to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int | None:
    """Return the open file of a lock taken without waiting, or None if another has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_at(path, descriptor):
            return descriptor
        # Its last holder removed it between the two calls.
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the one that a path names."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
