"""Problems, solvers, models and training, without a file, a network or a server.

What a researcher wants is here by name, and imported when it is first asked for:

>>> import lsm_core as lsm
>>> list(lsm.BENCHMARKS)[:3], lsm.BENCHMARKS["darcy"] is lsm.Darcy, "fno" in lsm.MODELS
(['burgers', 'darcy', 'navier_stokes'], True, True)

A problem has parameters, a shape and a solver; a seed is always the same sample:

>>> problem = lsm.Burgers(resolution=64, viscosity=0.05)
>>> {name: values.shape for name, values in problem.generate(seed=7).items()}
{'initial': (64,), 'final': (64,)}
>>> problem.shape == lsm.ProblemShape(space=(64,), n_inputs=1, n_outputs=1)
True
>>> lsm.Airfoil().shape.space, lsm.Pipe().shape.space, lsm.Plasticity().shape.space
((221, 51), (129, 129), (101, 31, 20))
>>> lsm.ElasticityPoints().space, lsm.ElasticityGrid().shape.space, lsm.NavierStokes().n_steps
(('point',), (41, 41), 10)

A model is built from its settings and the shape of its problem; on scattered points it is the body
of another; where a problem steps through time the operator applies it again and again:

>>> import torch
>>> config = lsm.smooth_form(width=8, n_scales=3)  # also release_form, paper_form
>>> type(config) is lsm.LsmConfig, len(lsm.paper_form().widths), lsm.release_form().widths[0]
(True, 5, 32)
>>> field = torch.rand(2, 64, 1)  # (batch, *space, channel)
>>> lsm.build_model(config, problem.shape)(field).shape
torch.Size([2, 64, 1])
>>> cloud = lsm.PointCloudConfig(body=config, latent_shape=(16, 16), n_modes=4)
>>> lsm.build_model(cloud, lsm.ElasticityPoints().shape)(torch.rand(1, 30, 44)).shape
torch.Size([1, 30, 1])
>>> fno, unet = lsm.FnoConfig(width=4, n_modes=3), lsm.UnetConfig(width=4)
>>> [type(lsm.build_operator(c, lsm.NavierStokes())).__name__ for c in (fno, unet)]
['Rollout', 'Rollout']

Training is a loop that hands control back; the caller logs, saves and stops:

>>> fields = lsm.Fields(field, 2 + field)
>>> settings = lsm.TrainingConfig(epochs=2, batch_size=1)
>>> scaled = [lsm.fit_normalization("channel", values) for values in (field, 2 + field)]
>>> model = lsm.Surrogate(lsm.build_model(config, problem.shape), *scaled)
>>> batches = lsm.BatchesInMemory(fields, 1, lsm.permutations(len(fields), seed=0))
>>> state = lsm.start_training(model, settings, n_batches=len(batches))
>>> [report.epoch for report in lsm.fit(state, batches, settings) if "Epoch" in repr(report)]
[1, 2]
>>> predicted = lsm.predict(model, field, batch_size=2)
>>> lsm.relative_l2(predicted, 2 + field).shape, float(lsm.relative_l2(field, field).sum())
(torch.Size([2]), 0.0)

A cell of a preset, and what comes of it when `lsm train` has run it:

>>> lsm.experiment("smoke", "darcy", "fno").training.epochs, lsm.Result.ERROR
(4, 'rel_l2')

The program itself imports from the modules, so that it loads no more than it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsm_core.benchmarks.airfoil import Airfoil as Airfoil
    from lsm_core.benchmarks.burgers import Burgers as Burgers
    from lsm_core.benchmarks.catalogue import BENCHMARKS as BENCHMARKS
    from lsm_core.benchmarks.darcy import Darcy as Darcy
    from lsm_core.benchmarks.elasticity_grid import ElasticityGrid as ElasticityGrid
    from lsm_core.benchmarks.elasticity_points import ElasticityPoints as ElasticityPoints
    from lsm_core.benchmarks.navier_stokes import NavierStokes as NavierStokes
    from lsm_core.benchmarks.pipe import Pipe as Pipe
    from lsm_core.benchmarks.plasticity import Plasticity as Plasticity
    from lsm_core.evaluation.evaluate import relative_l2 as relative_l2
    from lsm_core.experiments.presets import experiment as experiment
    from lsm_core.models.catalogue import MODELS as MODELS
    from lsm_core.models.catalogue import build_model as build_model
    from lsm_core.models.fno import FnoConfig as FnoConfig
    from lsm_core.models.lsm import LsmConfig as LsmConfig
    from lsm_core.models.lsm import paper_form as paper_form
    from lsm_core.models.lsm import release_form as release_form
    from lsm_core.models.lsm import smooth_form as smooth_form
    from lsm_core.models.point_cloud import PointCloudConfig as PointCloudConfig
    from lsm_core.models.unet import UnetConfig as UnetConfig
    from lsm_core.problems.shape import ProblemShape as ProblemShape
    from lsm_core.result import Result as Result
    from lsm_core.surrogates.normalization import fit_normalization as fit_normalization
    from lsm_core.surrogates.operator import build_operator as build_operator
    from lsm_core.surrogates.surrogate import Surrogate as Surrogate
    from lsm_core.surrogates.surrogate import predict as predict
    from lsm_core.training.batches import BatchesInMemory as BatchesInMemory
    from lsm_core.training.batches import Fields as Fields
    from lsm_core.training.batches import permutations as permutations
    from lsm_core.training.config import TrainingConfig as TrainingConfig
    from lsm_core.training.loop import fit as fit
    from lsm_core.training.state import start_training as start_training

_NAMES = {
    "benchmarks.airfoil": ("Airfoil",),
    "benchmarks.burgers": ("Burgers",),
    "benchmarks.catalogue": ("BENCHMARKS",),
    "benchmarks.darcy": ("Darcy",),
    "benchmarks.elasticity_grid": ("ElasticityGrid",),
    "benchmarks.elasticity_points": ("ElasticityPoints",),
    "benchmarks.navier_stokes": ("NavierStokes",),
    "benchmarks.pipe": ("Pipe",),
    "benchmarks.plasticity": ("Plasticity",),
    "evaluation.evaluate": ("relative_l2",),
    "experiments.presets": ("experiment",),
    "models.catalogue": ("MODELS", "build_model"),
    "models.fno": ("FnoConfig",),
    "models.lsm": ("LsmConfig", "paper_form", "release_form", "smooth_form"),
    "models.point_cloud": ("PointCloudConfig",),
    "models.unet": ("UnetConfig",),
    "problems.shape": ("ProblemShape",),
    "result": ("Result",),
    "surrogates.normalization": ("fit_normalization",),
    "surrogates.operator": ("build_operator",),
    "surrogates.surrogate": ("Surrogate", "predict"),
    "training.batches": ("BatchesInMemory", "Fields", "permutations"),
    "training.config": ("TrainingConfig",),
    "training.loop": ("fit",),
    "training.state": ("start_training",),
}
"""The public names of every module that has some."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Return a public name from the module that has it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lsm_core' has no attribute {name!r}")
    return getattr(import_module(f"lsm_core.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
