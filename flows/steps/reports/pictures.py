"""The pictures of a report that need more than results: stored predictions and weights."""

from collections.abc import Mapping, Sequence

import torch

from flows.errors import BadInput
from flows.steps.models.packaging import TrainedRun, trained_run
from flows.steps.models.trust import measured_trust
from flows.steps.training.showcase import SHOWN_SAMPLES, showcase_panels
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.evaluation.calibration import observed_coverage
from lsm_core.evaluation.latent_process import principal_components, solving_process
from lsm_core.experiments.plans import benchmark_from_plain
from lsm_core.problems.fields import stack_channels
from lsm_core.problems.panel import Panel
from lsm_core.reporting.charts import coverage, error_over_steps, training_curves
from lsm_core.reporting.comparison import OverSeeds, Row, finished, grouped
from lsm_core.reporting.document import Block, Picture
from lsm_core.reporting.figures import showcase, solving_figure
from lsm_core.result import Outcome, Result
from storage.location import Location
from storage.runs.checkpoints import Checkpoints

STEP = "rel_l2_step_"
LENGTHS = ("m", "mm")
STATED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def benchmark_blocks(
    outcomes: Sequence[Outcome], rows: Sequence[Row], root: Location
) -> list[Block]:
    """Return the pictures of one benchmark: predictions, error over time, training curves."""
    by_model = grouped(finished(outcomes), lambda result: result.model)
    ordered = {row.model: by_model[row.model] for row in rows if row.model in by_model}
    if not ordered:
        return ["Every run failed."]
    first = {model: some[0] for model, some in ordered.items()}
    problem = benchmark_from_plain(next(iter(first.values())).settings["data"])
    trained = {model: [first[model].history] for model in sorted(first) if first[model].history}
    caption = f"{problem.title}: error on validation samples while training."
    return [
        *_showcases(problem, first, root),
        *_rollouts(problem, ordered),
        *_coverages(problem, first, root),
        *([Picture(training_curves(trained), caption)] if trained else []),
    ]


def shown_models(models: Sequence[str]) -> list[str]:
    """Return LSM and the two best of the others, given models from the best to the worst."""
    others = [model for model in models if model != "lsm"]
    return [model for model in ("lsm", *others[:2]) if model in models]


def _showcases(problem: Benchmark, runs: Mapping[str, Result], root: Location) -> list[Block]:
    shown = {}
    for model in shown_models(list(runs)):
        try:
            kept = Checkpoints(root / "checkpoints" / runs[model].identity)
            shown[model] = kept.arrays("showcase")
        except FileNotFoundError:
            continue
    if not shown:
        return ["No picture of predictions: the test samples that runs keep are gone."]
    pictures: list[Block] = []
    for sample in range(SHOWN_SAMPLES):
        truth, predicted = showcase_panels(problem, shown, sample)
        is_line = len(truth[-1].positions) == 1
        drawn = "their errors below" if is_line else "errors below, red too high and blue too low"
        named = ", ".join(f"{model} {runs[model].identity}" for model in shown)
        caption = (
            f"{problem.title}: test sample {sample + 1}, predictions and {drawn}. Runs, as their "
            f"tag `identity` in MLflow names them: {named}."
        )
        pictures.append(Picture(showcase(truth, predicted, length_unit(problem)), caption))
        if not is_line:
            break  # a line takes little room; of larger pictures one is enough
    return [*pictures, *_worst(problem, runs, root)]


def _worst(problem: Benchmark, runs: Mapping[str, Result], root: Location) -> list[Block]:
    """Return the worst test sample of the first model that is shown, beside the typical ones."""
    model = shown_models(list(runs))[0]
    result = runs[model]
    try:
        kept = Checkpoints(root / "checkpoints" / result.identity).arrays("worst")
    except FileNotFoundError:
        return []  # an older run
    truth, predicted = showcase_panels(problem, {model: kept}, 0)
    caption = (
        f"{problem.title}: the worst test sample of {model}, with a relative error of "
        f"{result.test['rel_l2_max']:.2g} where the mean is {result.error:.2g}. In MLflow the run "
        f"is found by tags.identity = '{result.identity}'."
    )
    return [Picture(showcase(truth, predicted, length_unit(problem)), caption)]


def _rollouts(problem: Benchmark, runs: Mapping[str, Sequence[Result]]) -> list[Block]:
    """Return the error of every step in time, where the model is applied again and again."""
    if problem.n_steps == 1:
        return []
    axis = problem.with_role("target")[0].dims[-1]
    times = problem.coordinates.get(axis, range(1, problem.n_steps + 1))
    curves = {
        model: {
            float(time): OverSeeds(tuple(r.test[f"{STEP}{number}"] for r in some))
            for number, time in enumerate(times, start=1)
        }
        for model, some in runs.items()
        if all(f"{STEP}{problem.n_steps}" in r.test for r in some)
    }
    if not curves:
        return []
    caption = (
        f"{problem.title}: test error of each predicted frame against its time. A model is applied "
        "to its own predictions, so errors grow; bars are the deviation over the seeds."
    )
    return [Picture(error_over_steps(curves, "time"), caption)]


def _coverages(problem: Benchmark, runs: Mapping[str, Result], root: Location) -> list[Block]:
    """Return how often the errors that models expect hold on test samples, where they say so."""
    curves, said = {}, []
    for model in shown_models(list(runs)):
        found = measured_trust(root, runs[model].identity)
        if found is None:
            continue
        trust, test = found
        parts = [part for part in STATED if part <= trust.coverage]
        seen = observed_coverage(trust, test.errors, test.spreads, parts)
        curves[model] = dict(zip(parts, seen, strict=True))
        strange = float((test.strangeness > 1).mean())
        said.append(f"{model} {strange:.0%} (stated {trust.false_alarms:.0%})")
    if not curves:
        return []
    caption = (
        f"{problem.title}: how many test samples have at most the error that their prediction "
        "says to expect, against how many should. Test samples that are called strange: "
        f"{', '.join(said)}."
    )
    return [Picture(coverage(curves), caption)]


def solving_blocks(results: Sequence[Result], root: Location) -> list[Block]:
    """Return the latent solving process of a trained LSM, on the first problem with a grid."""
    found = [r for r in results if r.model == "lsm" and len(r.resolution) <= 2]
    # Darcy, as in the paper, where input and output look least alike.
    for result in sorted(found, key=lambda r: (r.benchmark != "darcy", r.seed)):
        if "body" in result.settings["model"]:
            continue
        try:
            return [_solving_picture(trained_run(result.identity, root))]
        except BadInput as error:
            return [f"No picture of the solving process: {error}."]
    return []


def _solving_picture(run: TrainedRun) -> Picture:
    problem, sample = run.benchmark, {name: values[0] for name, values in run.example.items()}
    space = dict(zip(problem.space, problem.shape.space, strict=True))
    inputs = torch.tensor(stack_channels(run.example, problem.with_role("input"), space))
    process = solving_process(run.predictor.surrogate(), inputs)
    whole = tuple(slice(size) for size in space.values())  # without the padding
    positions = problem.positions_of(sample)
    panels, parts = [], []
    for name, features in (
        ("input features", process.features_before),
        ("output features", process.features_after),
    ):
        scores, part = principal_components(features[whole])
        values = scores[..., 0].reshape(positions[0].shape)
        panels.append(Panel(title=name, positions=positions, values=values))
        parts.append(f"{part[0]:.0%}")
    tokens = [
        (title, principal_components(values)[0])
        for title, values in (
            ("latent tokens", process.tokens_before),
            ("latent tokens, solved", process.tokens_after),
        )
    ]
    caption = (
        f"{problem.title}: what LSM does with one test sample at its finest scale. Above, the "
        f"first principal component of the features before and after ({' and '.join(parts)} of "
        f"their variance). Below, the {process.tokens_before.shape[1]} latent tokens of each of "
        f"the {len(process.tokens_before)} patches in the plane of their first two "
        "components, before and after the spectral block."
    )
    return Picture(solving_figure(panels[0], panels[1], tokens, length_unit(problem)), caption)


def length_unit(problem: Benchmark) -> str:
    """Return the unit of positions: that of any variable that is a length, else none."""
    return next((v.unit for v in problem.variables if v.unit in LENGTHS), "1")
