"""The page of a verdict, of models that nobody trained, without a tracking server."""

import numpy as np

from flows.steps.models.judgement import Verdict
from flows.steps.models.measurement import Pair
from flows.steps.models.verdict_page import TITLES, _figures, _pictures, _sentences
from lsm_core.evaluation.promotion import Measured, PromotionRule, decide
from storage.location import Location

LOCKED = np.linspace(0.01, 0.02, 11)


def verdict(factor: float) -> Verdict:
    champion = Measured(locked=LOCKED, new=np.array([0.02]), costs={"parameters": 19825.0})
    challenger = Measured(
        locked=factor * LOCKED, new=np.array([0.03]), costs={"parameters": 39650.0}
    )
    decision = decide(champion, challenger, PromotionRule(), 0.9 * LOCKED)
    return Verdict(
        model="pde-burgers",
        state="Kept",
        reason=decision.reason,
        champion=1,
        challenger=2,
        decision=decision,
        pair=Pair(champion=champion, challenger=challenger),
    )


def test_the_table_has_every_figure_and_names_what_is_broken() -> None:
    rows = {row[0]: row[1:] for row in _figures(verdict(0.5)).rows}
    assert rows["mean error, 11 locked samples"][:3] == ("0.015", "0.0075", "-50.0%")
    assert rows["mean error, 1 new sample"][:3] == ("0.02", "0.03", "+50.0%")
    assert rows["the champion, trained on without new samples"][1:3] == ("0.0135", "-10.0%")
    assert rows["parameters"] == ("19,825", "39,650", "+100.0%", "at most +50%: BROKEN")
    assert rows["the worst tenth"][3] == "at most +10%: kept"


def test_every_sample_is_a_point_of_the_picture(tmp_path: object) -> None:
    (picture,) = _pictures(verdict(0.5), {}, Location.parse(str(tmp_path)))
    assert "locked samples" in picture.svg
    assert "new samples" in picture.svg
    assert picture.svg.count("<use ") >= len(LOCKED) + 1


def test_a_title_says_who_is_champion() -> None:
    assert TITLES["Kept"].format(**vars(verdict(0.5))) == "pde-burgers: version 1 stays champion"
    assert _sentences(["worse.", "", "freed"]) == "Worse. Freed."
