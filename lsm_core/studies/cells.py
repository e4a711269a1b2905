"""What the studies train, as lists of cells: an experiment each, and what it is called there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from lsm_core.benchmarks.darcy import Darcy
from lsm_core.experiments.experiment import Experiment, Start
from lsm_core.experiments.plans import DataPlan
from lsm_core.experiments.presets import experiment
from lsm_core.experiments.protocols import PROTOCOLS, Problem
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import LsmConfig, release_form, smooth_form
from lsm_core.models.lsm_ablations import ablations, component_ablations, sweeps
from lsm_core.models.lsm_ours import LsmOursConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import BenchmarkName, ModelName, PresetName
from lsm_core.surrogates.predictor import at_grid
from lsm_core.training.fine_tuning import EVERYTHING

FRACTIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
QUICK_FRACTIONS = (0.2, 0.6, 1.0)
"""Fewer, so that the study is a matter of minutes."""
RESOLUTIONS: dict[BenchmarkName, dict[PresetName, tuple[int, ...]]] = {
    "darcy": {"smoke": (16, 32), "quick": (32, 64), "paper": (32, 64, 128, 256, 512, 1024)},
    "burgers": {
        "smoke": (32, 64),
        "quick": (128, 256, 512),
        "paper": (256, 512, 1024, 2048, 4096, 8192),
    },
    "navier_stokes": {"smoke": (16, 32), "quick": (16, 32), "paper": (64, 128)},
}
SIZED_AS: dict[PresetName, PresetName] = {
    "matched": "quick",
    "night": "quick",
    "release": "paper",
}
"""Presets that have the resolutions of another one."""
ABLATED: tuple[BenchmarkName, ...] = (
    "elasticity_p",
    "elasticity_g",
    "plasticity",
    "navier_stokes",
    "darcy",
    "airfoil",
    "pipe",
)
"""The problems of the paper's whole ablation table."""
FULL_LENGTH = 25_000
"""Updates of the paper's trainings: 500 epochs of 1000 samples, 20 at a time."""
AT_LENGTH: tuple[BenchmarkName, ...] = ("burgers", "darcy", "elasticity_g")
"""What two cores train that long in hours."""
BUDGETS = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""Parts of a preset's epochs, each a training of its own: a schedule has to come to its end."""
BUDGETED: tuple[BenchmarkName, ...] = ("burgers", "darcy", "airfoil")
"""On an axis, on a plane, and around a body."""
SOLVERS_ABLATED: tuple[BenchmarkName, ...] = ("elasticity_p", "darcy")
"""Those of its second table too, which replaces the solver; all that small presets run."""


@dataclass(frozen=True)
class Cell:
    """One experiment of a study and what it is called there."""

    setting: str
    experiment: Experiment


def same_from_each_seed(
    preset: PresetName,
    seed: int,
    *,
    models: Sequence[ModelName],
    benchmarks: Sequence[Problem] | None = None,
) -> list[Cell]:
    """Return cells of the main table, on all benchmarks if none are named.

    They need no name beside their model's.
    """
    return [
        Cell("", experiment(preset, *names, seed))
        for names in product(benchmarks or PROTOCOLS, models)
    ]


def burgers_settings(preset: PresetName, seed: int) -> list[Cell]:
    """Return forms of LSM on Burgers, whose settings were never published.

    From the released form by analogy with two dimensions, one change at a time, to the smooth
    form, and that at other widths and numbers of scales. To be judged on validation samples.
    """
    width, n_scales = (8, 3) if preset == "smoke" else (16, 5)
    release = release_form(width=width, n_scales=n_scales)
    smooth = smooth_form(width=width, n_scales=n_scales)
    forms: dict[str, LsmConfig] = {
        "release form": release,
        "release form, circular": _with_convolution(release, boundary="circular"),
        "release form, GELU": _with_convolution(release, activation="gelu"),
        "release form, instance norm": _with_convolution(release, normalization="instance"),
        "release form, no norm": _with_convolution(release, normalization="none"),
        "smooth form": smooth,
        "smooth form, max pooling": _with_convolution(smooth, pooling="max"),
        "smooth form, one scale fewer": smooth_form(width=width, n_scales=n_scales - 1),
        "smooth form, half as wide": smooth_form(width=max(8, width // 2), n_scales=n_scales),
        "smooth form, whole field as one patch": replace(smooth, patchify=False),
    }
    return _variants(experiment(preset, "burgers", "lsm", seed), forms)


def burgers_forms(preset: PresetName, seed: int) -> list[Cell]:
    """Return the two forms of LSM that are compared on Burgers at length, and FNO.

    The smooth form is the one that the settings above lead to; the released form is that of the
    scripts for two dimensions, as wide as the smooth one so that nothing else differs.
    """
    width, n_scales = (8, 3) if preset == "smoke" else (16, 5)
    forms = {
        "smooth form": smooth_form(width=width, n_scales=n_scales),
        "released form": release_form(width=width, n_scales=n_scales),
    }
    fno = Cell("", experiment(preset, "burgers", "fno", seed))
    return [fno, *_variants(experiment(preset, "burgers", "lsm", seed), forms)]


def full_length(
    preset: PresetName,
    seed: int,
    *,
    models: Sequence[ModelName],
    benchmarks: Sequence[Problem] | None = None,
) -> list[Cell]:
    """Return cells of the main table, trained for as many updates as the paper's are.

    In `smoke` they are as long as that preset is.
    """
    made = []
    for names in product(benchmarks or AT_LENGTH, models):
        cell = experiment(preset, *names, seed)
        if preset != "smoke":
            batch_size = cell.training.batch_of(cell.data.n_train)
            epochs = round(FULL_LENGTH * batch_size / cell.data.n_train)
            cell = replace(cell, training=replace(cell.training, epochs=epochs))
        made.append(Cell(names[1], cell))
    return made


def budgets(
    preset: PresetName,
    seed: int,
    *,
    models: Sequence[ModelName],
    benchmarks: Sequence[Problem] | None = None,
) -> list[Cell]:
    """Return cells of the main table, and the same with a part of their epochs."""
    made = []
    for name, model in product(benchmarks or BUDGETED, models):
        whole = experiment(preset, name, model, seed)
        lengths = [max(1, round(part * whole.training.epochs)) for part in BUDGETS]
        for epochs in dict.fromkeys(lengths):
            shorter = replace(whole, training=replace(whole.training, epochs=epochs))
            made.append(Cell(f"{model}, {epochs} epochs", shorter))
    return made


def own_ablations(
    preset: PresetName, seed: int, *, benchmarks: Sequence[Problem] | None = None
) -> list[Cell]:
    """Return LSM (ours) whole, and with one part of it left out or replaced."""
    made = []
    for name in benchmarks or AT_LENGTH:
        base = experiment(preset, name, "lsm_ours", seed)
        config = base.model.body if isinstance(base.model, PointCloudConfig) else base.model
        if not isinstance(config, LsmOursConfig):
            raise TypeError(f"LSM (ours) of {preset} on {name} is a {type(config).__name__}")
        is_bare = config.normalization == "none"
        forms = {
            "whole": config,
            "no tokens": replace(config, n_tokens=0),
            "tokens without their series": replace(config, n_basis=0),
            "4 tokens": replace(config, n_tokens=4),
            "64 tokens": replace(config, n_tokens=64),
            "no waves": replace(config, n_waves=0),
            "half as many waves": replace(config, n_waves=max(1, config.n_waves // 2)),
            "normalised channels" if is_bare else "no normalisation": replace(
                config, normalization="instance" if is_bare else "none"
            ),
        }
        made += _variants(base, forms)
    return made


def darcy_at_43(preset: PresetName, seed: int) -> list[Cell]:
    """Return LSM and FNO, both 32 wide, on every tenth point of the published Darcy grid.

    All published training samples and 60 epochs: what a processor without a GPU can train in an
    hour. `smoke` and `quick` are the cells of those presets.
    """
    made = []
    both: tuple[ModelName, ...] = ("lsm", "fno")
    for model in both:
        cell = experiment(preset, "darcy", model, seed)
        if preset in ("paper", "release"):
            short = replace(cell.training, epochs=60, schedule="one_cycle", learning_rate=1e-3)
            form = release_form(width=32) if model == "lsm" else FnoConfig(width=32)
            coarse = replace(cell.data, benchmark=Darcy(resolution=421, stride=10))
            cell = replace(cell, data=coarse, training=short, model=form)
        made.append(Cell(model, cell))
    return made


def darcy_zero_shot(preset: PresetName, seed: int, *, models: Sequence[ModelName]) -> list[Cell]:
    """Return training on every tenth point of Darcy, and the same weights asked on finer grids.

    The points of the coarse grid are points of the finer ones, and the samples are the same.
    """
    n_cells, *strides = (32, 4, 2, 1) if preset == "smoke" else (421, 10, 5, 2)
    made = []
    for model in models:
        base = experiment(preset, "darcy", model, seed)
        made += _asked_on_finer(base, [_with_stride(base.data, n_cells, n) for n in strides])
    return made


def burgers_zero_shot(preset: PresetName, seed: int, *, models: Sequence[ModelName]) -> list[Cell]:
    """Return training on Burgers, and the same weights asked at 4 and 16 times as many points."""
    made = []
    for model in models:
        base = experiment(preset, "burgers", model, seed)
        (size,) = base.benchmark.shape.space
        made += _asked_on_finer(base, [base.data.at_resolution(n * size) for n in (1, 4, 16)])
    return made


def _asked_on_finer(base: Experiment, plans: Sequence[DataPlan]) -> list[Cell]:
    """Return an experiment on the first of some data, and its weights asked on the others.

    One statistic a channel, since those of points belong to a grid.
    """
    one_a_channel = replace(
        base.training, input_normalization="channel", target_normalization="channel"
    )
    coarse = replace(base, data=plans[0], training=one_a_channel)
    space = coarse.benchmark.shape.space
    trained = f"{base.model_name} trained at {space[0]}"
    made = [Cell(trained, coarse)]
    for plan in plans[1:]:
        # Nothing is trained on them, and one sample is enough to have the plan's parts.
        data = replace(plan, n_train=1, n_validation=1)
        finer = data.benchmark.shape.space
        asked = replace(
            coarse,
            data=data,
            model=at_grid(coarse.model, space, finer),
            training=replace(coarse.training, updates=0),
            start=Start(source=coarse, frozen=(EVERYTHING,)),
        )
        made.append(Cell(f"{trained}, asked at {finer[0]}", asked))
    return made


def _with_stride(plan: DataPlan, n_cells: int, stride: int) -> DataPlan:
    return replace(plan, benchmark=Darcy(resolution=n_cells, stride=stride))


def paper_ablations(
    preset: PresetName, seed: int, *, benchmarks: Sequence[Problem] | None = None
) -> list[Cell]:
    """Return the rows of the ablation tables, each on the problems for which the paper has it.

    Small presets run the problems that both tables have unless others are named.
    """
    is_small = SIZED_AS.get(preset, preset) != "paper"
    return [
        cell
        for name in benchmarks or (SOLVERS_ABLATED if is_small else ABLATED)
        for cell in _lsm_variants(
            preset, name, seed, ablations if name in SOLVERS_ABLATED else component_ablations
        )
    ]


def elasticity_hyperparameters(preset: PresetName, seed: int) -> list[Cell]:
    """Return the sweeps over latent tokens, basis operators and scales."""
    return _lsm_variants(preset, "elasticity_g", seed, sweeps)


def resolutions(
    benchmark: BenchmarkName, preset: PresetName, seed: int, *, models: Sequence[ModelName]
) -> list[Cell]:
    """Return training on the same samples of a benchmark at several resolutions."""
    made = []
    for model in models:
        base = experiment(preset, benchmark, model, seed)
        for size in RESOLUTIONS[benchmark][SIZED_AS.get(preset, preset)]:
            at_size = replace(base, data=base.data.at_resolution(size))
            made.append(Cell(f"{model} at {size}", at_size))
    return made


def pipe_to_airfoil(preset: PresetName, seed: int, *, models: Sequence[ModelName]) -> list[Cell]:
    """Return training on parts of the airfoil samples, from scratch and from models of pipes."""
    made = []
    fractions = QUICK_FRACTIONS if preset == "quick" else FRACTIONS
    for model in models:
        source = experiment(preset, "pipe", model, seed)
        target = experiment(preset, "airfoil", model, seed)
        for fraction in fractions:
            part = replace(target, training=replace(target.training, fraction=fraction))
            tuned = replace(part, start=Start(source=source))
            share = f"{fraction:.0%} of the data"
            made.append(Cell(f"{model} from scratch, {share}", part))
            made.append(Cell(f"{model} fine-tuned, {share}", tuned))
    return made


def _lsm_variants(
    preset: PresetName,
    benchmark: Problem,
    seed: int,
    variants: Callable[[LsmConfig], dict[str, LsmConfig]],
) -> list[Cell]:
    base = experiment(preset, benchmark, "lsm", seed)
    config = base.model.body if isinstance(base.model, PointCloudConfig) else base.model
    if not isinstance(config, LsmConfig):
        raise TypeError(f"the LSM of {preset} on {benchmark} is a {type(config).__name__}")
    return _variants(base, variants(config))


def _variants(
    base: Experiment, forms: Mapping[str, LsmConfig] | Mapping[str, LsmOursConfig]
) -> list[Cell]:
    """Return an experiment with each of some configurations, as bodies on scattered points."""
    wrapper = base.model if isinstance(base.model, PointCloudConfig) else None
    return [
        Cell(name, replace(base, model=replace(wrapper, body=config) if wrapper else config))
        for name, config in forms.items()
    ]


def _with_convolution(config: LsmConfig, **changes: str) -> LsmConfig:
    return replace(config, convolution=replace(config.convolution, **changes))  # type: ignore[arg-type]
