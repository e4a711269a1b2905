import numpy as np
import pytest

from lsm_core.evaluation.new_data import profile_of, require_plausible, shift_from


def fields(seed: int, n_samples: int = 40, size: float = 1.0) -> dict[str, np.ndarray]:
    """Return smooth random fields on a line, and a target that is twice as large."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 2 * np.pi, 32)
    waves = random.normal(size=(n_samples, 3)) @ np.stack([np.sin(x), np.cos(x), np.sin(2 * x)])
    given = (size * waves).astype(np.float32)
    return {"initial": given, "final": 2 * given}


KNOWN = profile_of(fields(0))


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("n_samples", [1, 5, 64])
def test_samples_of_the_same_kind_pass(seed: int, n_samples: int) -> None:
    require_plausible(KNOWN, fields(seed, n_samples))
    assert shift_from(KNOWN, fields(seed, n_samples)) == ""


@pytest.mark.parametrize(("factor", "said"), [(1000, "large"), (0.001, "small")])
def test_other_units_are_refused(factor: float, said: str) -> None:
    wrong = fields(1) | {"final": factor * fields(1)["final"]}
    with pytest.raises(ValueError, match=f"final is of size .*{said}: its unit seems to be"):
        require_plausible(KNOWN, wrong)


def test_a_value_that_no_sample_has_is_refused() -> None:
    wrong = fields(1)
    wrong["initial"][3, 7] = 60.0
    with pytest.raises(
        ValueError, match=r"values from .* to 60 in 1 of 40 samples, expected about"
    ):
        require_plausible(KNOWN, wrong)


def test_another_regime_is_told_and_not_refused() -> None:
    larger = fields(1, 20, size=2.2)
    require_plausible(KNOWN, larger)
    said = shift_from(KNOWN, larger)
    assert said.startswith("the new samples are unlike the training samples: the ")
    assert "deviations away" in said
    lifted = fields(1, 20)
    lifted["initial"] = lifted["initial"] + 1.0
    assert "the mean of initial is" in shift_from(KNOWN, lifted)


def test_what_never_varies_is_compared_with_nothing() -> None:
    flat = {"initial": np.zeros((5, 8), np.float32)}
    require_plausible(profile_of(flat), flat)
    assert shift_from(profile_of(flat), flat) == ""


def test_rounding_is_no_shift() -> None:
    known = {"initial": fields(0)["initial"] - fields(0)["initial"].mean(1, keepdims=True)}
    others = fields(1)["initial"]
    new = {"initial": others - others.mean(1, keepdims=True) + np.float32(1e-6)}
    assert shift_from(profile_of(known), new) == ""
