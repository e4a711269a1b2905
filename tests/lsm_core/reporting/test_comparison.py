import pytest

from lsm_core.reporting.comparison import row_name


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, "lsm"),
        ("", "lsm"),
        ("smooth form", "lsm (smooth form)"),
        ("lsm", "lsm"),
        ("lsm fine-tuned, 20% of the data", "lsm (fine-tuned, 20% of the data)"),
    ],
)
def test_a_row_names_its_model_once(setting: str | None, expected: str) -> None:
    assert row_name({"model": "lsm", "setting": setting}) == expected
