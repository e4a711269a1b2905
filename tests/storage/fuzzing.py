"""Damaged files, read in a process with little memory that is watched from outside.

    found, n_refused = failures("npy", folder, n_inputs=40)

A crash of a C library, a hang and an appetite for memory are found as well as a wrong exception.
"""

import multiprocessing
import random
import resource
import struct
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from tests.storage.fuzzed_readers import READERS

MEMORY = 2**30
MOST_RESIDENT = 3 * MEMORY
"""What a reader may have in memory, libraries and all; looked at from outside, once a second."""
SECONDS = 30.0
"""Time for one input; thousands of times what it needs, on a machine that is busy otherwise."""
START_SECONDS = 600.0
INTERESTING = (0, 1, 2, 7, 8, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63)

processes = multiprocessing.get_context("forkserver")


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file with some bits turned, cut off, a length changed or parts exchanged."""
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        if size == 0:
            return b""
        at = chance.randrange(size)
        # Most of what decides stands at the beginning.
        at = at if chance.random() < 0.5 else min(at, chance.randrange(min(size, 256)))
        kind = chance.choice(("bits", "cut", "length", "splice", "remove", "text"))
        if kind == "bits":
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del changed[chance.randrange(size) :]
        elif kind == "length":
            layout = chance.choice(("<I", ">I", "<Q", "<H"))
            width, value = struct.calcsize(layout), chance.choice(INTERESTING)
            at -= at % chance.choice((1, 4, 8))
            packed = struct.pack(layout, value % 2 ** (8 * width))
            changed[at : at + width] = packed[: max(0, size - at)]
        elif kind == "splice":
            start = chance.randrange(size)
            piece = changed[start : start + chance.randrange(1, 64)]
            changed[at : at + len(piece) * chance.randrange(2)] = piece
        elif kind == "remove":
            del changed[at : at + chance.randrange(1, 32)]
        else:
            words = (b"null", b"-1", b"1e999", b"NaN", b'"', b"{}", b"[]", b"true", b"\\u0000")
            changed[at : at + chance.randrange(1, 8)] = chance.choice(words)
    return bytes(changed)


def fuzz(sender: Connection, name: str, folder: Path, numbers: range) -> None:
    """Read damaged files one after another, telling which before each and what went wrong after."""
    reader, own_errors = READERS[name], READERS[name].own_errors()
    whole = _content(folder)
    names = [path for path in whole if path.match(reader.victims)]
    damage = reader.damage or damaged
    # The whole files first: they must be readable, and what is imported then is not counted.
    reader.read(folder)
    _restore(folder, whole)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number in numbers:
        sender.send(("at", number))
        chance = random.Random(f"{name} {number}")
        victim = chance.choice(names)
        victim.write_bytes(damage(whole[victim], chance))
        try:
            reader.read(folder)
        except own_errors:
            sender.send(("refused", number))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} in {place.filename}:{place.lineno}"
            sender.send(("failure", f"{name} {number} ({victim.name}): {text}"))
        finally:
            _restore(folder, {victim: whole[victim]})


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _restore(folder: Path, content: dict[Path, bytes]) -> None:
    """Remove what reading has made, and write files as they were."""
    for path in folder.rglob("scratch"):
        path.unlink()
    for path, each in content.items():
        path.write_bytes(each)


def failures(name: str, folder: Path, n_inputs: int) -> tuple[list[str], int]:
    """Return what went wrong with damaged inputs, and how many were refused."""
    folder.mkdir()
    READERS[name].make(folder)
    whole = _content(folder)
    found: list[str] = []
    number, n_refused = 0, 0
    while number < n_inputs:
        _restore(folder, whole)  # a process that was killed left its last input
        receiver, sender = processes.Pipe(duplex=False)
        child = processes.Process(target=fuzz, args=(sender, name, folder, range(number, n_inputs)))
        child.start()
        sender.close()
        patience = START_SECONDS
        try:
            while True:
                wrong = trouble(receiver, child.pid, patience)
                if wrong:
                    found.append(f"{name} {number}: {wrong}")
                    break
                kind, value = receiver.recv()
                patience = SECONDS
                if kind == "at":
                    number = value
                elif kind == "refused":
                    n_refused += 1
                else:
                    found.append(value)
        except EOFError:
            child.join()
            if child.exitcode:
                found.append(f"{name} {number}: the process died with {child.exitcode}")
        child.kill()
        child.join()
        number += 1
    return found, n_refused


def trouble(receiver: Connection, pid: int | None, patience: float) -> str:
    """Wait for the next message; return what is wrong with a process that takes too much."""
    deadline = time.monotonic() + patience
    while not receiver.poll(1.0):
        with suppress(psutil.Error):
            resident = psutil.Process(pid).memory_info().rss
            if resident > MOST_RESIDENT:
                return f"takes {resident / 2**30:.1f} GiB"
        if time.monotonic() > deadline:
            return f"takes longer than {patience:.0f} s"
    return ""
