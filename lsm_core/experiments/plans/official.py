"""A data plan whose samples are those of published files instead of seeds."""

from dataclasses import dataclass
from typing import Any

from lsm_core.experiments.plans.plan import DataPlan, Origin


@dataclass(frozen=True, kw_only=True)
class OfficialPlan(DataPlan):
    """A plan that takes the first samples of each part of official files.

    The problem says which fields on which grid; its solver makes none of the samples. `recipe` is
    the hash of the files and of the way they are converted, `dataset` the name of what comes of
    it. Both are empty as long as the files are not at hand.
    """

    stride: int
    """Every n-th point of the files is a point of the problem."""
    is_exported: bool = False
    """Whether the files were written from generated data and only look like the published ones."""
    recipe: str = ""
    dataset: str = ""

    @property
    def origin(self) -> Origin:
        """Return where the samples come from."""
        return "exported" if self.is_exported else "official"

    def seed_of(self, sample: int) -> int:
        """Raise LookupError: these samples have no seeds."""
        raise LookupError(f"sample {sample} of official files has no seed")

    def to_plain(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        plain = super().to_plain()
        del plain["first_seeds"]
        own = ("stride", "is_exported", "recipe", "dataset")
        return {**plain, "official": {name: getattr(self, name) for name in own}}
