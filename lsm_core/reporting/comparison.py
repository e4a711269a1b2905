"""Results side by side: over their seeds, by rank, and beside the paper's figures."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev
from typing import TypeVar

from lsm_core.names import MODEL_TITLES
from lsm_core.reporting.published_results import published_for, published_tables
from lsm_core.result import Outcome, Result, marked

Key = TypeVar("Key", bound=Hashable)
Some = TypeVar("Some", bound=Outcome)
Names = tuple[str, str]
Places = dict[Names, int]

PUBLISHED = ("paper", "release")
"""The presets whose data have the published sizes."""
DATA = {
    "generated": "of our own solvers",
    "official": "the published files",
    "exported": "files that were written from data of our own solvers as the published ones are",
    "given": "files that were brought",
}
"""What the data of each origin are."""


@dataclass(frozen=True)
class OverSeeds:
    """A figure of each seed."""

    values: tuple[float, ...]
    n_failed: int = 0
    """Seeds whose runs have no figure."""
    as_published: bool = False
    """Whether data and length of the training are the paper's, so that its figure compares."""

    @property
    def mean(self) -> float:
        """Return the mean; infinite if every run failed."""
        return fmean(self.values) if self.values else float("inf")

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a sample; zero of a single seed."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    def over(self, scale: float) -> "OverSeeds":
        """Return all figures divided by one."""
        values = tuple(value / scale for value in self.values)
        return OverSeeds(values, self.n_failed, self.as_published)

    def text(self) -> str:
        """Return the mean to four digits, the deviation to two, and how many runs failed."""
        if not self.values:
            return "failed"
        deviation = f" ± {self.deviation:.2g}" if len(self.values) > 1 else ""
        failed = f" ({self.n_failed} failed)" if self.n_failed else ""
        return f"{self.mean:.4g}{deviation}{failed}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model on one benchmark, over its seeds."""

    benchmark: str
    resolution: tuple[int, ...]
    model: str
    errors: OverSeeds
    n_parameters: int
    mean_prediction: float
    """Error of always predicting the mean of the training targets: the least to beat."""
    seconds_per_epoch: float
    peak_bytes: int
    """Most memory of a run: of its device, or of its whole process on a CPU."""
    updates: int | None = None
    """Steps of the optimiser."""
    samples_seen: int | None = None
    """Samples that passed through the model in training, each as often as it did."""
    flops: float | None = None
    """Operations of the training."""
    published: float | None
    origin: str = "generated"
    """Where the samples come from; errors on other samples do not compare."""

    @property
    def problem(self) -> str:
        """Return benchmark, grid and, unless it is generated, the kind of data."""
        grid = "×".join(str(size) for size in self.resolution)
        return f"{self.benchmark} ({marked(grid, self.origin)})"


def compare(outcomes: Iterable[Outcome]) -> list[Row]:
    """Return one row a benchmark, kind of data and model; on each the best comes first."""
    groups = grouped(outcomes, lambda o: (o.benchmark, o.resolution, o.origin, row_name(o)))
    rows = [_row(group) for group in groups.values()]
    order = list(dict.fromkeys(row.problem for row in rows))
    return sorted(rows, key=lambda row: (order.index(row.problem), row.errors.mean))


def row_name(outcome: Outcome) -> str:
    """Return what a run is called in a table: its model, and its setting where it has one.

    Some settings begin with the model, which is not said twice. A run without a setting that has
    another start or less data than others says that.
    """
    model, setting = outcome.model, outcome.setting
    setting = setting.removeprefix(model).strip() if setting else start_and_data(outcome)
    title = MODEL_TITLES.get(model, model)  # type: ignore[call-overload]
    return f"{title} ({setting})" if setting else title


def start_and_data(outcome: Outcome) -> str:
    """Return whether a run started from another and had a part of the data; empty if neither."""
    start = ["fine-tuned"] if outcome.source else []
    data = [f"{outcome.fraction:.0%} of the data"] if outcome.fraction != 1.0 else []
    return ", ".join([*start, *data])


def finished(outcomes: Iterable[Outcome]) -> list[Result]:
    """Return the results, without the failures."""
    return [outcome for outcome in outcomes if isinstance(outcome, Result)]


def grouped(outcomes: Iterable[Some], key: Callable[[Some], Key]) -> dict[Key, list[Some]]:
    """Return outcomes by a key, in the order they came in."""
    groups: dict[Key, list[Some]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return groups


def error_over_seeds(outcomes: Sequence[Outcome]) -> OverSeeds:
    """Return the test errors of runs that differ in their seeds."""
    done = finished(outcomes)
    as_published = all(map(is_as_published, done))
    return OverSeeds(
        tuple(result.error for result in done), len(outcomes) - len(done), as_published
    )


def is_as_published(result: Result) -> bool:
    """Return whether a run has the sizes of the paper's data and was trained as long as there."""
    length = published_tables()["protocol"]["epochs"]
    return result.preset in PUBLISHED and result.epochs >= length


def error_curves(
    outcomes: Iterable[Some], key: Callable[[Some], tuple[str, float]]
) -> dict[str, dict[float, OverSeeds]]:
    """Return test errors over the seeds, by a name and by what they are drawn against."""
    curves: dict[str, dict[float, OverSeeds]] = {}
    for (name, place), some in grouped(outcomes, key).items():
        curves.setdefault(name, {})[place] = error_over_seeds(some)
    return curves


def difference(ours: float, published: float | None) -> str:
    """Return by how much a figure is above a published one, or a dash where there is none."""
    return "–" if published is None or not isfinite(ours) else f"{ours / published - 1:+.0%}"


def places_within(figures: Mapping[Names, float | None]) -> Places:
    """Return the place of every finite figure among those whose first name is the same."""
    places: Places = {}
    for group in dict.fromkeys(first for first, _ in figures):
        known = {
            key: value
            for key, value in figures.items()
            if key[0] == group and value is not None and isfinite(value)
        }
        ordered = sorted(known, key=lambda key: known[key])
        places |= {key: place for place, key in enumerate(ordered, start=1)}
    return places


def ranks(rows: Sequence[Row]) -> Places:
    """Return the place of each model among those that finished, by benchmark and model."""
    return places_within({(row.benchmark, row.model): row.errors.mean for row in rows})


def mean_rank(places: Places, model: str) -> float:
    """Return the mean place of a model over its benchmarks; infinite if it has none."""
    own = [place for (_, name), place in places.items() if name == model]
    return fmean(own) if own else float("inf")


def describe_data(outcomes: Iterable[Outcome]) -> str:
    """Return a sentence on what the data of some runs are."""
    found = sorted({outcome.origin for outcome in outcomes})
    return f"The data are {' and '.join(DATA[origin] for origin in found)}"


def _row(group: Sequence[Outcome]) -> Row:
    first, done = group[0], finished(group)
    means = [result.mean_prediction for result in done if result.mean_prediction is not None]
    return Row(
        benchmark=first.benchmark,
        resolution=first.resolution,
        model=row_name(first),
        errors=error_over_seeds(group),
        n_parameters=done[0].parameters if done else 0,
        mean_prediction=means[0] if means else float("nan"),
        seconds_per_epoch=fmean(r.seconds_per_epoch for r in done) if done else float("nan"),
        peak_bytes=max((result.peak_bytes for result in done), default=0),
        updates=done[0].updates if done else None,
        samples_seen=done[0].samples_seen if done else None,
        flops=done[0].flops if done else None,
        published=published_for(first),
        origin=first.origin,
    )
