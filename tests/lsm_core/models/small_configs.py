"""Every model as small as it can be while nothing of it is left out."""

from lsm_core.models.catalogue import GridModelConfig
from lsm_core.models.deeponet import DeeponetConfig
from lsm_core.models.ffno import FfnoConfig
from lsm_core.models.flare import FlareConfig
from lsm_core.models.fno import FnoConfig
from lsm_core.models.galerkin import GalerkinConfig
from lsm_core.models.htnet import HtnetConfig
from lsm_core.models.kno import KnoConfig
from lsm_core.models.last_frame import LastFrameConfig
from lsm_core.models.lno import LnoConfig
from lsm_core.models.lsm import release_form
from lsm_core.models.lsm_ours import LsmOursConfig
from lsm_core.models.mean_field import MeanFieldConfig
from lsm_core.models.mwt import MwtConfig
from lsm_core.models.pod_nn import PodNnConfig
from lsm_core.models.pod_rbf import PodRbfConfig
from lsm_core.models.resnet import ResnetConfig
from lsm_core.models.ridge import RidgeConfig
from lsm_core.models.sno import SnoConfig
from lsm_core.models.swin import SwinConfig
from lsm_core.models.tfnet import TfnetConfig
from lsm_core.models.transolver import TransolverConfig
from lsm_core.models.ufno import UfnoConfig
from lsm_core.models.unet import UnetConfig
from lsm_core.models.uno import UnoConfig
from lsm_core.names import ModelName

SMALL: dict[ModelName, GridModelConfig] = {
    "lsm": release_form(width=8, n_scales=2),
    "lsm_ours": LsmOursConfig(width=4, n_scales=2, n_tokens=3, n_basis=4, n_waves=4, head_width=8),
    "unet": UnetConfig(width=4, n_scales=2, head_width=8),
    "resnet": ResnetConfig(width=4, n_blocks=(1, 1)),
    "tfnet": TfnetConfig(width=4, n_scales=2, window=2),
    "swin": SwinConfig(width=8, n_blocks=2, n_heads=2, window=4, head_width=8),
    "deeponet": DeeponetConfig(width=8, n_trunk_layers=2, n_sensors=64),
    "fno": FnoConfig(width=4, n_modes=3, n_layers=2, head_width=8),
    "ufno": UfnoConfig(width=4, n_modes=3, n_fourier_layers=1, n_unet_layers=1, head_width=8),
    "mwt": MwtConfig(width=1, order=2, n_modes=2, n_blocks=2, head_width=8),
    "galerkin": GalerkinConfig(
        width=8, n_layers=2, n_heads=2, decoder_width=4, n_decoder_layers=2, n_modes=3, head_width=8
    ),
    "sno": SnoConfig(width=6, n_coefficients=5, n_layers=2),
    "uno": UnoConfig(width=4, n_modes=4, n_levels=2, head_width=8),
    "htnet": HtnetConfig(
        width=4, depths=(2, 1), window=2, n_modes=3, n_decoder_layers=2, head_width=8
    ),
    "ffno": FfnoConfig(width=4, n_modes=3, n_layers=2, head_width=8),
    "kno": KnoConfig(width=4, n_modes=3, n_steps=2),
    "transolver": TransolverConfig(width=8, n_layers=2, n_heads=2, n_slices=5),
    "lno": LnoConfig(width=8, n_layers=2, n_heads=2, n_latents=5, n_hidden_layers=1),
    "mean_field": MeanFieldConfig(),
    "last_frame": LastFrameConfig(),
    "ridge": RidgeConfig(width=4),
    "pod_rbf": PodRbfConfig(width=4, n_input_modes=3, n_centres=6),
    "pod_nn": PodNnConfig(width=6, n_layers=2, n_input_modes=3, n_output_modes=4, n_steps=20),
    "flare": FlareConfig(
        width=8, n_layers=2, n_heads=2, n_latents=5, n_hidden_layers=1, n_outer_layers=1
    ),
}
