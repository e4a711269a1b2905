import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest

from lsm_core.configuration import from_plain
from lsm_core.models.catalogue import MODELS
from lsm_core.models.lsm import paper_form, smooth_form
from lsm_core.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    rate: float
    counts: int | tuple[int, ...]
    corner: tuple[float, float] | None = None
    parts: tuple[Inner, ...] = ()
    wanted: bool = True


def plain(config: Any) -> Any:
    return json.loads(json.dumps(asdict(config)))


@pytest.mark.parametrize(
    "made",
    [
        Outer(inner=Inner(size=3), rate=1, counts=4),
        Outer(inner=Inner(kind="b"), rate=0.5, counts=(4, 5), corner=(1.0, 2.0), wanted=False),
        Outer(inner=Inner(), rate=0.5, counts=(), parts=(Inner(size=2), Inner(size=3))),
    ],
)
def test_plain_data_leads_back_to_the_same_settings(made: Outer) -> None:
    assert from_plain(Outer, plain(made)) == made


def test_settings_of_models_and_training_come_back() -> None:
    for config in (paper_form(), smooth_form(width=16)):
        assert from_plain(type(config), plain(config)) == config
    for config_class in (model.config for model in MODELS.values()):
        assert from_plain(config_class, plain(config_class())) == config_class()
    assert from_plain(TrainingConfig, plain(TrainingConfig(epochs=7))) == TrainingConfig(epochs=7)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"inner": {"size": 1}}, "not of Inner: they lack kind; they were written by another"),
        ({"colour": 1}, "not of Outer: they have colour, which it does not know"),
        ({"rate": "fast"}, "Outer.rate must be of type float, got 'fast'"),
        ({"wanted": 1}, "Outer.wanted must be of type bool, got 1"),
        ({"inner": {"size": True, "kind": "a"}}, "Inner.size must be of type int, got True"),
        ({"inner": {"size": 1, "kind": "c"}}, r"Inner.kind must be one of \('a', 'b'\), got 'c'"),
        ({"counts": ["many"]}, "Outer.counts must be of type int or tuple"),
        ({"corner": [1.0]}, "Outer.corner must be of type"),
        ({"inner": 3}, "Inner needs settings by name, got 3"),
    ],
)
def test_other_data_is_refused_in_a_sentence(change: dict[str, Any], sentence: str) -> None:
    values = plain(Outer(inner=Inner(), rate=1.0, counts=1))
    with pytest.raises(ValueError, match=sentence):
        from_plain(Outer, {**values, **change})
