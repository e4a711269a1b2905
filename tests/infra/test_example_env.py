import re
from pathlib import Path

import pytest

from flows.settings import Settings
from tests.infra.known_names import settings_read

REPOSITORY = Path(__file__).parents[2]


def examples() -> dict[str, str]:
    lines = (REPOSITORY / "infra" / "example.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_example_names_exactly_the_settings_that_are_read() -> None:
    read = settings_read()
    assert set(examples()) == read
    documented = set(re.findall(r"^    ([A-Z_]+)  ", Settings.__doc__ or "", re.MULTILINE))
    assert documented == read


def test_the_example_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in examples():
        monkeypatch.delenv(name, raising=False)
    default = Settings.from_environment()
    for name, value in examples().items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment() == default
