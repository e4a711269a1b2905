"""The studies by name: what each trains, how a report shows it and what is said of it.

A study is data, and whatever runs a benchmark runs it. `efficiency` is none: it trains nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lsm_core.experiments.protocols import Problem
from lsm_core.names import BenchmarkName, ModelName, PresetName, StudyName
from lsm_core.reporting.document import Block
from lsm_core.reporting.protocol import protocol_sentence
from lsm_core.result import Outcome
from lsm_core.studies import cells
from lsm_core.studies.cells import Cell
from lsm_core.studies.sections import (
    ablation_blocks,
    budget_blocks,
    plain_blocks,
    resolution_blocks,
    stability_blocks,
    sweep_blocks,
)
from lsm_core.studies.transfer import transfer_blocks

LATER_MODELS: tuple[ModelName, ...] = ("transolver", "lno", "flare")
"""Models that came after the paper."""
GRID_MODELS: tuple[ModelName, ...] = (
    *("lsm", "unet", "fno", "mwt", "uno", "ffno", "htnet"),
    *LATER_MODELS,
)
"""The models in the paper's tables of resolutions on two axes, and later ones."""
LINE_MODELS: tuple[ModelName, ...] = ("lsm", "fno", "mwt", "uno", "ffno", *LATER_MODELS)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that there is to a study; its name is in `names.StudyName`, too."""

    title: str
    text: str = "A study of the paper; its protocol is in the table below."
    """What the page of results says of it."""
    cells: Callable[..., list[Cell]]
    """What it trains at a preset from a seed, with the models and benchmarks that it takes."""
    blocks: Callable[[Sequence[Outcome]], list[Block]] = plain_blocks
    """What a report shows of its results."""
    models: tuple[ModelName, ...] = ()
    """The models that it compares, unless others are named; none if it is of LSM alone."""
    takes_benchmarks: bool = False
    seeds: tuple[int, ...] = (0,)
    is_published: bool = True
    """Whether the paper has it, so that a report without it says so."""


def _resolutions(benchmark: BenchmarkName, name: str, models: tuple[ModelName, ...]) -> Study:
    return Study(
        title=f"Resolutions of {name}",
        cells=partial(cells.resolutions, benchmark),
        blocks=resolution_blocks,
        models=models,
    )


STUDIES: dict[StudyName, Study] = {
    "ablations": Study(
        title="Ablations of LSM",
        cells=cells.paper_ablations,
        blocks=ablation_blocks,
        takes_benchmarks=True,
    ),
    "hyperparameters": Study(
        title="Hyperparameters of LSM",
        cells=cells.elasticity_hyperparameters,
        blocks=sweep_blocks,
    ),
    "resolutions-darcy": _resolutions("darcy", "Darcy", GRID_MODELS),
    "resolutions-burgers": _resolutions("burgers", "Burgers", LINE_MODELS),
    "resolutions-navier-stokes": _resolutions("navier_stokes", "Navier-Stokes", GRID_MODELS),
    "transfer": Study(
        title="Transfer from pipe to airfoil",
        text="Parts of the airfoil samples, from scratch and from the weights of a pipe model.",
        cells=cells.pipe_to_airfoil,
        blocks=transfer_blocks,
        models=("lsm", "unet", "uno", "htnet", *LATER_MODELS),
    ),
    "stability": Study(
        title="Stability over seeds",
        cells=cells.same_from_each_seed,
        blocks=stability_blocks,
        models=("lsm",),
        takes_benchmarks=True,
        seeds=(0, 1, 2, 3, 4),
    ),
    "burgers-forms": Study(
        title="LSM on Burgers in two forms",
        text="LSM in the released form and in the smooth form that the study of settings found, "
        "and FNO. At preset paper with 256 points, 1000 training samples, 500 epochs, batch 20, "
        "Adam, the rate halved every 100 epochs; the last epoch counts.",
        cells=cells.burgers_forms,
        is_published=False,
    ),
    "darcy-at-43": Study(
        title="Darcy at 43x43",
        text="At preset paper 1000 samples on every tenth point of 421, normalized point by point, "
        "width 32, one-cycle, 60 epochs.",
        cells=cells.darcy_at_43,
        is_published=False,
    ),
    "burgers-settings": Study(
        title="LSM on Burgers: which settings?",
        text="The paper's settings in one dimension were never published. From the released form, "
        "one change at a time, judged on validation samples.",
        cells=cells.burgers_settings,
        is_published=False,
    ),
    "zero-shot-darcy": Study(
        title="Darcy at resolutions that were not trained",
        text="Trained on 43x43 points, every tenth of 421, and asked on 85x85 and 211x211 of the "
        "same media without further training. One statistic a channel.",
        cells=cells.darcy_zero_shot,
        models=("lsm", "lsm_ours", "fno", *LATER_MODELS),
        is_published=False,
    ),
    "zero-shot-burgers": Study(
        title="Burgers at resolutions that were not trained",
        text="Trained on the points of the preset, and asked at 4 and 16 times as many of the same "
        "functions without further training. One statistic a channel.",
        cells=cells.burgers_zero_shot,
        models=("lsm", "lsm_ours", "fno", *LATER_MODELS),
        is_published=False,
    ),
    "full-length": Study(
        title="As many updates as the paper's",
        text="The models and samples of the preset, trained for 25,000 updates, as 500 epochs of "
        "batch 20 on 1000 samples have, by the recipe that is the same for every model. Meant "
        "for preset night.",
        cells=cells.full_length,
        models=("lsm_ours", "fno", "lsm"),
        takes_benchmarks=True,
        is_published=False,
    ),
    "ablations-ours": Study(
        title="Ablations of LSM (ours)",
        text="One part of LSM (ours) left out or put in place of another, all else the same.",
        cells=cells.own_ablations,
        takes_benchmarks=True,
        seeds=(0, 1, 2),
        is_published=False,
    ),
    "budgets": Study(
        title="Which model at which budget?",
        text="Trainings of an eighth, a quarter, a half and all of the preset's epochs, each with "
        "its schedule to the end; seconds are those of training on this machine, without the "
        "data's. Meant for preset night and a quiet machine.",
        cells=cells.budgets,
        blocks=budget_blocks,
        models=("lsm_ours", "fno", "unet"),
        takes_benchmarks=True,
        is_published=False,
    ),
}
"""In the order of a report."""


def study_cells(
    name: StudyName,
    preset: PresetName,
    seeds: Sequence[int] | None = None,
    models: Sequence[ModelName] | None = None,
    rows: Sequence[str] | None = None,
    benchmarks: Sequence[Problem] | None = None,
) -> list[Cell]:
    """Return the cells of a study, once a seed; only those whose settings `rows` names, if given.

    A study that compares models takes those of the paper unless others are named; ValueError if
    models or benchmarks are named for one that takes none, or a row that there is not.
    """
    study = STUDIES[name]
    if benchmarks is not None and not study.takes_benchmarks:
        others = " and ".join(other for other, known in STUDIES.items() if known.takes_benchmarks)
        raise ValueError(
            f"the study {name} has a benchmark of its own; those that take others are {others}"
        )
    if models is not None and not study.models:
        others = ", ".join(other for other, known in STUDIES.items() if known.models)
        raise ValueError(
            f"the study {name} has models of its own; those that take others are {others}"
        )
    chosen: dict[str, Any] = {"models": models or study.models} if study.models else {}
    chosen |= {"benchmarks": benchmarks} if benchmarks else {}
    made = [cell for seed in seeds or study.seeds for cell in study.cells(preset, seed, **chosen)]
    if rows is None:
        return made
    known = list(dict.fromkeys(cell.setting for cell in made))
    unknown = [row for row in rows if row not in known]
    if unknown:
        raise ValueError(f"the study {name} has no row {unknown[0]!r}; it has {', '.join(known)}")
    return [cell for cell in made if cell.setting in rows]


def study_of(name: str) -> Study:
    """Return a study; one that is not known any more has a title, a table and curves."""
    unknown = Study(title=f"Study {name}", text="", cells=lambda *_: [])
    return STUDIES.get(name, unknown)  # type: ignore[call-overload]


def study_blocks(name: str, outcomes: Sequence[Outcome]) -> list[Block]:
    """Return what a report says of a study."""
    return [*study_of(name).blocks(outcomes), protocol_sentence(outcomes)]
