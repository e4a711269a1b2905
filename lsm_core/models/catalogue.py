"""The models by name, and how to build one."""

from dataclasses import replace

from torch import nn

from lsm_core.models.deeponet import Deeponet, DeeponetConfig
from lsm_core.models.ffno import Ffno, FfnoConfig
from lsm_core.models.fno import Fno, FnoConfig, FourierNetwork
from lsm_core.models.galerkin import Galerkin, GalerkinConfig
from lsm_core.models.htnet import Htnet, HtnetConfig
from lsm_core.models.kno import Kno, KnoConfig
from lsm_core.models.lsm import LatentSpectralNetwork, Lsm, LsmConfig
from lsm_core.models.mwt import Mwt, MwtConfig
from lsm_core.models.point_cloud import PointCloudConfig, PointCloudModel
from lsm_core.models.resnet import Resnet, ResnetConfig
from lsm_core.models.sno import Sno, SnoConfig
from lsm_core.models.swin import Swin, SwinConfig
from lsm_core.models.tfnet import Tfnet, TfnetConfig
from lsm_core.models.ufno import Ufno, UfnoConfig
from lsm_core.models.unet import Unet, UnetConfig
from lsm_core.models.uno import Uno, UnoConfig
from lsm_core.names import TIME_STEPPING, ModelName
from lsm_core.problems.shape import ProblemShape

GridModelConfig = (
    LsmConfig
    | UnetConfig
    | ResnetConfig
    | TfnetConfig
    | SwinConfig
    | DeeponetConfig
    | FnoConfig
    | UfnoConfig
    | MwtConfig
    | GalerkinConfig
    | SnoConfig
    | UnoConfig
    | HtnetConfig
    | FfnoConfig
    | KnoConfig
)
ModelConfig = GridModelConfig | PointCloudConfig

MODELS: dict[ModelName, tuple[type[GridModelConfig], type[nn.Module]]] = {
    "lsm": (LsmConfig, Lsm),
    "unet": (UnetConfig, Unet),
    "resnet": (ResnetConfig, Resnet),
    "tfnet": (TfnetConfig, Tfnet),
    "swin": (SwinConfig, Swin),
    "deeponet": (DeeponetConfig, Deeponet),
    "fno": (FnoConfig, Fno),
    "ufno": (UfnoConfig, Ufno),
    "mwt": (MwtConfig, Mwt),
    "galerkin": (GalerkinConfig, Galerkin),
    "sno": (SnoConfig, Sno),
    "uno": (UnoConfig, Uno),
    "htnet": (HtnetConfig, Htnet),
    "ffno": (FfnoConfig, Ffno),
    "kno": (KnoConfig, Kno),
}


def build_model(config: ModelConfig, shape: ProblemShape) -> nn.Module:
    """Return a model from fields `(batch, *space, n_inputs)` to `(batch, *space, n_outputs)`.

    On scattered points a model by name is the body of a `PointCloudConfig`, and space is one
    axis of points.
    """
    if isinstance(config, PointCloudConfig):
        return PointCloudModel(config, shape, _latent_network(config))
    _, model_class = MODELS[model_name(config)]
    return model_class(config, shape)


def model_name(config: ModelConfig) -> ModelName:
    """Return the name of the model that a configuration belongs to, on points that of its body."""
    owner = config.body if isinstance(config, PointCloudConfig) else config
    for name, (config_class, _) in MODELS.items():
        if type(owner) is config_class:
            return name
    raise ValueError(f"no model has a configuration of type {type(owner).__name__}")


def _latent_network(config: PointCloudConfig) -> nn.Module:
    """Return the network on the latent grid, from features to features of the same width.

    LSM and FNO go without the lift and the head that they have on a grid of data. All but LSM
    end in a linear layer, and the Fourier layer to the points would be one with it: as in
    geo-FNO, there is an activation between them.
    """
    own_width = replace(config, n_features=None).width
    if isinstance(config.body, LsmConfig | FnoConfig) and config.width != own_width:
        raise ValueError(
            f"{model_name(config)} of width {own_width} reads and writes as many features, "
            f"not {config.width}"
        )
    if isinstance(config.body, LsmConfig):
        return LatentSpectralNetwork(config.body, config.latent_shape)
    if isinstance(config.body, FnoConfig):
        return nn.Sequential(FourierNetwork(config.body, config.latent_shape), nn.GELU())
    name = model_name(config)
    if name in TIME_STEPPING:
        raise ValueError(f"{name} predicts time steps and does not work on scattered points")
    _, model_class = MODELS[name]
    return nn.Sequential(model_class(config.body, config.latent_problem), nn.GELU())
