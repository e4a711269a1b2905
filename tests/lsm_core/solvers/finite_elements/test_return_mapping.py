import numpy as np
import pytest

from lsm_core.solvers.finite_elements.return_mapping import (
    ElasticPlastic,
    return_to_yield_surface,
    von_mises_stress,
)

STEEL = ElasticPlastic()
# sigma^T P sigma = 2/3 (von Mises stress)^2 for (xx, yy, xy).
PROJECTION = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 6.0]]) / 3
POISSON = STEEL.poisson_ratio
COMPLIANCE = (
    np.array([[1.0, -POISSON, 0.0], [-POISSON, 1.0, 0.0], [0.0, 0.0, 2 * (1 + POISSON)]])
    / STEEL.young_modulus
)


def random_trials(largest=500.0, n_trials=1000):
    return np.random.default_rng(0).uniform(-largest, largest, (3, n_trials, 1))


def returned(trial, material, plastic_strain=0.0):
    """Return the stress, the plastic strain and the change of the thickness strain."""
    stress = trial.copy()
    strain = np.full(trial.shape[1:], plastic_strain)
    thickness_strain = np.zeros(trial.shape[1:])
    n_failures = return_to_yield_surface(stress, strain, thickness_strain, material.yield_constants)
    assert n_failures == 0
    return stress, strain, thickness_strain


@pytest.mark.parametrize("largest", [80.0, 500.0, 1e5])
@pytest.mark.parametrize("hardening", [0.0, 200.0, 2000.0])
def test_stresses_beyond_yield_return_to_the_yield_surface(largest, hardening):
    material = ElasticPlastic(hardening_modulus=hardening)
    trial = random_trials(largest)
    stress, strain, _ = returned(trial, material)
    yielded = von_mises_stress(trial) > material.yield_stress
    assert yielded.any()
    limit = material.yield_stress + hardening * strain
    deviation = abs(von_mises_stress(stress) / limit - 1)
    assert deviation[yielded].max() < 1e-7
    assert (strain[yielded] > 0).all()


def test_elastic_stresses_stay_as_they_are():
    trial = random_trials(30.0)
    stress, strain, thickness_strain = returned(trial, STEEL)
    np.testing.assert_array_equal(stress, trial)
    assert not strain.any()
    assert not thickness_strain.any()


def test_plastic_strain_is_normal_to_the_yield_surface():
    trial = random_trials()
    stress, strain, _ = returned(trial, STEEL)
    yielded = strain[:, 0] > 0
    lost = (COMPLIANCE @ (trial - stress)[..., 0])[:, yielded]
    normal = (PROJECTION @ stress[..., 0])[:, yielded]
    multiplier = (lost * normal).sum(axis=0) / (normal**2).sum(axis=0)
    assert multiplier.min() > 0
    np.testing.assert_allclose(lost, multiplier * normal, atol=1e-12)
    np.testing.assert_allclose(
        strain[yielded, 0], multiplier * 2 / 3 * von_mises_stress(stress)[yielded, 0], rtol=1e-9
    )


def test_plastic_flow_keeps_the_volume():
    trial = random_trials()
    stress, _, thickness_strain = returned(trial, STEEL)
    lost = trial - stress
    plastic = (COMPLIANCE @ lost[..., 0])[:2].sum(axis=0)
    elastic_regained = POISSON / STEEL.young_modulus * lost[:2, :, 0].sum(axis=0)
    np.testing.assert_allclose(thickness_strain[:, 0], elastic_regained - plastic, atol=1e-15)


def test_hardening_starts_from_the_plastic_strain_so_far():
    material = ElasticPlastic(hardening_modulus=1000.0)
    trial = np.array([[[100.0]], [[0.0]], [[0.0]]])
    untouched, strain, _ = returned(trial, material, plastic_strain=0.04)
    np.testing.assert_array_equal(untouched, trial)
    assert strain == 0.04
    _, strain, _ = returned(trial, material, plastic_strain=0.02)
    assert strain > 0.02


@pytest.mark.parametrize(
    "parameters", [{"yield_stress": 0.0}, {"poisson_ratio": 0.5}, {"hardening_modulus": -1.0}]
)
def test_impossible_materials_are_refused(parameters):
    with pytest.raises(ValueError, match="must be"):
        ElasticPlastic(**parameters)
