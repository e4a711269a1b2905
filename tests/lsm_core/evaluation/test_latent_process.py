import numpy as np
import pytest
import torch

from lsm_core.evaluation.latent_process import principal_components, solving_process
from lsm_core.models.fno import Fno, FnoConfig
from lsm_core.models.lsm import Lsm, release_form
from lsm_core.problems.shape import ProblemShape


@pytest.mark.parametrize("space", [(16,), (16, 8)])
def test_features_and_tokens_of_a_scale_are_those_of_its_block(space: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    shape = ProblemShape(space=space, n_inputs=1, n_outputs=1)
    model = Lsm(release_form(width=8, n_scales=2), shape)
    process = solving_process(model, torch.rand(1, *space, 1), scale=0)
    block = model.network.solve[0]
    features = torch.from_numpy(process.features_before).unsqueeze(0)
    with torch.no_grad():
        after = block(features)
        solved = block.solver(torch.from_numpy(process.tokens_before))
    assert process.features_before.shape[:-1] == space
    np.testing.assert_allclose(process.features_after, after[0].numpy(), atol=1e-6)
    np.testing.assert_allclose(process.tokens_after, solved.numpy(), atol=1e-6)
    assert not block._forward_hooks
    assert model.training


def test_a_model_without_latent_space_has_no_process() -> None:
    shape = ProblemShape(space=(16,), n_inputs=1, n_outputs=1)
    with pytest.raises(ValueError, match="the model has 0 latent spectral blocks"):
        solving_process(Fno(FnoConfig(width=8, n_modes=4), shape), torch.rand(1, 16, 1))


def test_components_are_found_in_turned_points() -> None:
    random = np.random.default_rng(0)
    plane = random.normal(size=(50, 2)) * (3.0, 1.0)
    turn, _ = np.linalg.qr(random.normal(size=(5, 5)))
    scores, parts = principal_components(plane @ turn[:2] + 7.0)
    assert parts.sum() == pytest.approx(1.0)
    assert parts[0] > 0.8
    gram = (plane - plane.mean(0)) @ (plane - plane.mean(0)).T
    np.testing.assert_allclose(scores @ scores.T, gram, atol=1e-10)


def test_equal_points_have_no_variance_to_show() -> None:
    scores, parts = principal_components(np.ones((4, 3)))
    assert np.isfinite(scores).all()
    assert (parts == 0).all()
