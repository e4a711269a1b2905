"""The models by name, and how to build one."""

from torch import nn

from lsm_core.models.fno import Fno, FnoConfig
from lsm_core.models.lsm import Lsm, LsmConfig
from lsm_core.models.point_cloud import PointCloudConfig, PointCloudModel
from lsm_core.problems.shape import ProblemShape

ModelConfig = LsmConfig | FnoConfig | PointCloudConfig

MODELS: dict[str, tuple[type[ModelConfig], type[nn.Module]]] = {
    "lsm": (LsmConfig, Lsm),
    "fno": (FnoConfig, Fno),
}


def build_model(config: ModelConfig, shape: ProblemShape) -> nn.Module:
    """Return a model from fields `(batch, *space, n_inputs)` to `(batch, *space, n_outputs)`.

    On scattered points a model by name is the body of a `PointCloudConfig`, and space is one
    axis of points.
    """
    if isinstance(config, PointCloudConfig):
        return PointCloudModel(config, shape)
    for config_class, model_class in MODELS.values():
        if type(config) is config_class:
            return model_class(config, shape)
    raise ValueError(f"no model has a configuration of type {type(config).__name__}")
