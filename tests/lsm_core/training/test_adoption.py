"""Weights of one problem's model in another's."""

import pytest
import torch
from torch import Tensor

from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm_ours import LsmOursConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.problems.shape import ProblemShape
from lsm_core.training.adoption import brought_over, suits

BODY = LsmOursConfig(width=8, n_scales=3, n_tokens=4, n_basis=4, n_waves=0)


def weights(config: object, space: tuple[int, ...], n_inputs: int = 1) -> dict[str, Tensor]:
    shape = ProblemShape(space=space, n_inputs=n_inputs, n_outputs=1)
    model = build_model(config, shape)  # type: ignore[arg-type]
    return {f"model.{name}": value for name, value in model.state_dict().items()}


def test_another_number_of_channels_suits_as_it_is() -> None:
    assert suits(weights(BODY, (8, 8)), weights(BODY, (16, 16), n_inputs=3))


def test_kernels_go_over_to_another_dimension_and_keep_their_answer() -> None:
    flat, deep = weights(BODY, (8, 8)), weights(BODY, (8, 8, 8))
    assert not suits(flat, deep)
    taken = brought_over(flat, deep)
    kernels = [n for n in taken if taken[n].ndim == 5 and taken[n].shape[-1] == 3]
    assert kernels
    for name in kernels:
        assert torch.allclose(taken[name].sum(-1), flat[name], atol=1e-6)
    assert taken.keys() == deep.keys()


def test_the_body_of_points_is_the_model_on_a_grid() -> None:
    wider = LsmOursConfig(width=16, n_scales=4, n_tokens=4, n_basis=4, n_waves=0)
    cloud = PointCloudConfig(body=wider, n_features=16, latent_shape=(8, 8), n_modes=2)
    points = weights(cloud, (50,), n_inputs=2)
    grid = weights(wider, (8, 8), n_inputs=16)
    taken = brought_over(grid, points)
    body = [n for n in points if n.startswith("model.network.")]
    known = {value.data_ptr(): value for value in grid.values()}.values()
    taken_over = [n for n in body if any(torch.equal(taken[n], value) for value in known)]
    assert len(taken_over) > len(body) / 2
    assert all(torch.equal(taken[n], points[n]) for n in points if n.startswith("model.lift."))


def test_a_source_with_too_little_in_common_is_refused_in_a_sentence() -> None:
    other = LsmOursConfig(width=16, n_scales=3, n_tokens=4, n_basis=4, n_waves=0)
    with pytest.raises(ValueError, match=r"of the \d+ weights that are needed here"):
        brought_over(weights(other, (8, 8)), weights(BODY, (8, 8)))
