"""Writing beside training: one at a time, nothing lost, errors told."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait

import pytest

from flows.steps.training.saving import Writer


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Provide what writing waits for; open at the end, so that nothing hangs."""
    event = threading.Event()
    yield event
    event.set()


def test_training_goes_on_while_something_is_written(gate: threading.Event) -> None:
    written: list[int] = []

    def write() -> None:
        gate.wait()
        written.append(1)

    with Writer() as writer:
        assert not writer.is_busy()
        writer.begin(write)
        assert writer.is_busy()
        assert written == []
        gate.set()
    assert written == [1]  # the block ends when it is done


def test_writings_come_one_after_the_other() -> None:
    written: list[int] = []
    with Writer() as writer:
        for number in range(5):
            writer.begin(lambda number=number: written.append(number))  # type: ignore[misc]
        writer.wait()
        assert written == list(range(5))


def fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("ask", [Writer.wait, Writer.is_busy, lambda writer: writer.begin(fail)])
def test_what_writing_fails_with_is_raised_where_it_is_asked_next(
    ask: Callable[[Writer], object],
) -> None:
    with Writer() as writer:
        writer.begin(fail)
        assert writer._writing is not None
        wait([writer._writing])
        with pytest.raises(OSError, match="the disk is full"):
            ask(writer)
        assert not writer.is_busy()


def test_what_the_last_writing_fails_with_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="the disk is full"), Writer() as writer:
        writer.begin(fail)


def test_of_two_errors_the_first_counts_and_what_was_begun_is_ended(gate: threading.Event) -> None:
    written: list[int] = []

    def write() -> None:
        gate.wait()
        written.append(1)

    def begin_and_diverge() -> None:
        with Writer() as writer:
            writer.begin(write)
            gate.set()
            raise RuntimeError("diverged")

    with pytest.raises(RuntimeError, match="diverged"):
        begin_and_diverge()
    assert written == [1]
