"""The models by name, and how to build one."""

from dataclasses import replace
from importlib import import_module
from typing import get_args

from torch import nn

from lsm_core.models.entry import ModelEntry
from lsm_core.models.lsm import LsmConfig
from lsm_core.models.point_cloud import BodyConfig, PointCloudConfig, PointCloudModel
from lsm_core.names import ModelName
from lsm_core.problems.shape import ProblemShape

GridModelConfig = LsmConfig | BodyConfig
ModelConfig = GridModelConfig | PointCloudConfig

MODELS: dict[ModelName, ModelEntry] = {
    name: import_module(f"lsm_core.models.{name}").MODEL for name in get_args(ModelName)
}
"""A model's name is that of its file."""


def build_model(config: ModelConfig, shape: ProblemShape) -> nn.Module:
    """Return a model from fields `(batch, *space, n_inputs)` to `(batch, *space, n_outputs)`.

    On scattered points a model by name is the body of a `PointCloudConfig`, and space is one
    axis of points.
    """
    if isinstance(config, PointCloudConfig):
        return PointCloudModel(config, shape, _latent_network(config))
    return MODELS[model_name(config)].network(config, shape)


def model_name(config: ModelConfig) -> ModelName:
    """Return the name of the model that a configuration belongs to, on points that of its body."""
    owner = config.body if isinstance(config, PointCloudConfig) else config
    for name, model in MODELS.items():
        if type(owner) is model.config:
            return name
    raise ValueError(f"no model has a configuration of type {type(owner).__name__}")


def _latent_network(config: PointCloudConfig) -> nn.Module:
    """Return the network on the latent grid, from features to features of the same width.

    All but LSM end in a linear layer, and the Fourier layer to the points would be one with it: as
    in geo-FNO, there is an activation between them.
    """
    name = model_name(config)
    model = MODELS[name]
    if model.latent is not None:
        own_width = replace(config, n_features=None).width
        if config.width != own_width:
            raise ValueError(
                f"{name} of width {own_width} reads and writes as many features, not {config.width}"
            )
        return model.latent(config.body, config.latent_shape)
    if model.needs_history:
        raise ValueError(f"{name} predicts time steps and does not work on scattered points")
    return nn.Sequential(model.network(config.body, config.latent_problem), nn.GELU())
