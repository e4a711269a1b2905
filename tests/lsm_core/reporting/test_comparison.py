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


def test_runs_with_less_data_or_another_start_are_not_averaged_with_others() -> None:
    assert row_name({"model": "lsm", "fraction": 1.0, "source": None}) == "lsm"
    assert row_name({"model": "lsm", "fraction": 0.2}) == "lsm (20% of the data)"
    tuned = {"model": "lsm", "fraction": 0.2, "source": "a"}
    assert row_name(tuned) == "lsm (fine-tuned, 20% of the data)"
