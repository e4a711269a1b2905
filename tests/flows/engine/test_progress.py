"""Progress in Prefect's pages: lines and bars, none too often, and no harm without a server."""

from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console
from rich.progress import Progress

from flows.engine.progress import BarProgress, LineProgress, RunProgress


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    moves: list[tuple[Any, ...]] = []

    def create(percent: float, key: str, description: str) -> Any:
        moves.append((key, percent, description))
        return uuid4()

    def update(_bar: Any, percent: float, description: str) -> None:
        moves.append(("moved", percent, description))

    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", create)
    monkeypatch.setattr("prefect.artifacts.update_progress_artifact", update)
    return moves


def test_a_kind_of_work_has_a_bar_that_moves_when_it_is_due(bars: list[Any]) -> None:
    lines: list[str] = []
    progress = RunProgress(lines.append, seconds=0.0, seconds_of_bars=1000.0)
    for done in range(5):
        progress.update("train burgers lsm seed 0", done, 4, f"epoch {done}")
    assert len(lines) == 5
    assert bars == [
        ("progress-train", 0.0, "train burgers lsm seed 0: epoch 0"),
        ("moved", 100.0, "train burgers lsm seed 0: epoch 4"),
    ]


def test_a_server_that_is_away_costs_a_bar_and_nothing_else(
    bars: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("away")

    lines: list[str] = []
    progress = RunProgress(lines.append)
    with monkeypatch.context() as away:
        away.setattr("prefect.artifacts.create_progress_artifact", refuse)
        progress.update("cells", 0, 2)
    progress.update("cells", 2, 2)
    assert lines == ["cells: 0 of 2", "cells: 2 of 2"]
    assert bars == [("progress-cells", 100.0, "cells")]


def test_what_came_of_some_work_is_a_line_of_its_own() -> None:
    lines: list[str] = []
    LineProgress(lines.append, seconds=1000.0).tell("burgers: LSM (ours) 0.005, fno 0.007")
    assert lines == ["burgers: LSM (ours) 0.005, fno 0.007"]
    console = Console(record=True, width=100, file=StringIO())
    BarProgress(Progress(console=console)).tell("burgers (256): fno [0.007]")
    assert console.export_text().strip() == "burgers (256): fno [0.007]"
