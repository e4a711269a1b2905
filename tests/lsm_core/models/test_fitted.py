"""The classical rows: what they compute is what their formulas say."""

import numpy as np
import pytest
import torch

from lsm_core.evaluation.cost import forward_flops
from lsm_core.experiments.presets import experiment
from lsm_core.experiments.trial import Trial
from lsm_core.models.catalogue import MODELS, build_model
from lsm_core.models.fitted import leave_one_out, principal_directions
from lsm_core.models.pod_nn import PodNnConfig
from lsm_core.models.pod_rbf import PodRbfConfig
from lsm_core.models.ridge import RidgeConfig
from lsm_core.problems.shape import ProblemShape
from lsm_core.training.batches import BatchesInMemory, Fields, SplitFields, permutations
from tests.lsm_core.models.small_configs import SMALL

SHAPE = ProblemShape(space=(5, 3), n_inputs=2, n_outputs=1)
FITTED = [name for name, entry in MODELS.items() if entry.is_fitted]


def samples(n_samples=24, seed=0, shape=SHAPE):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n_samples, *shape.space, shape.n_inputs, generator=generator)
    mixing = torch.randn(30, 15, generator=torch.Generator().manual_seed(9)) / 5
    targets = inputs.flatten(1) @ mixing + 2
    return inputs, targets.view(n_samples, *shape.space, shape.n_outputs)


def in_parts(pair):
    return list(zip(*(part.split(7) for part in pair), strict=True))


def fitted(config, pair):
    model = build_model(config, SHAPE)
    model.fit(in_parts(pair))
    return model.eval()


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


def test_the_mean_field_is_the_mean_of_the_targets():
    inputs, targets = samples()
    model = fitted(SMALL["mean_field"], (inputs, targets))
    found = model(inputs[:2])
    torch.testing.assert_close(found, targets.mean(0).expand(2, -1, -1, -1))


def test_the_last_frame_stays():
    history = torch.randn(2, 4, 4, 10)
    shape = ProblemShape(space=(4, 4), n_inputs=10, n_outputs=3)
    found = build_model(SMALL["last_frame"], shape)(history)
    assert torch.equal(found, history[..., -1:].expand(2, 4, 4, 3))


def test_ridge_regression_finds_a_linear_map():
    pair, (asked, expected) = samples(60), samples(5, seed=1)
    with torch.no_grad():
        assert relative(fitted(RidgeConfig(), pair)(asked), expected) < 1e-3


def test_ridge_regression_is_that_of_the_normal_equations():
    # Fewer samples than numbers, and noise: the penalty matters.
    inputs, targets = samples(12)
    noisy = targets + torch.randn(targets.shape, generator=torch.Generator().manual_seed(2))
    model = fitted(RidgeConfig(), (inputs, noisy))
    rows = inputs.flatten(1).double()
    centred = (rows - rows.mean(0)).numpy()
    wanted = (noisy.flatten(1) - noisy.flatten(1).mean(0)).double().numpy()
    size = (centred**2).sum(1).mean()
    found = {}
    for part in (10.0**power for power in range(-8, 3)):
        matrix = np.linalg.solve(centred.T @ centred + part * size * np.eye(30), centred.T @ wanted)
        # By leaving out each sample in turn, without the shortcut.
        errors = []
        for left in range(12):
            kept = np.arange(12) != left
            gram = centred[kept].T @ centred[kept] + part * size * np.eye(30)
            without = np.linalg.solve(gram, centred[kept].T @ wanted[kept])
            errors.append(
                np.linalg.norm(centred[left] @ without - wanted[left])
                / np.linalg.norm(wanted[left])
            )
        found[np.mean(errors)] = matrix
    with torch.no_grad():
        change = model(inputs) - model(torch.zeros_like(inputs))
    expected = rows.numpy() @ found[min(found)]
    assert change.flatten(1).numpy() == pytest.approx(expected, abs=1e-4)


def test_radial_functions_go_through_the_samples_and_between_them():
    generator = torch.Generator().manual_seed(3)
    code = torch.rand(200, 2, generator=generator)
    inputs = code[:, None, None, :].expand(-1, 5, 3, 2)
    targets = torch.sin(3 * code.sum(1))[:, None, None, None].expand(-1, 5, 3, 1)
    model = fitted(PodRbfConfig(), (inputs[:150], targets[:150]))
    with torch.no_grad():
        assert relative(model(inputs[:150]), targets[:150]) < 1e-2
        assert relative(model(inputs[150:]), targets[150:]) < 1e-2


def parameters_of_a_body(n_samples=300):
    """Return five numbers of each sample, the same at all points, and what smoothly follows."""
    generator = torch.Generator().manual_seed(3)
    code = torch.rand(n_samples, 5, generator=generator)
    shares = torch.linspace(0, 1, 15).view(5, 3)
    phase = 2 * code[:, :3].sum(1).view(-1, 1, 1)
    field = torch.sin(phase + 3 * shares) * (1 + (code[:, 3] * code[:, 4]).view(-1, 1, 1))
    return code[:, None, None, :].expand(-1, 5, 3, 5), field[..., None]


def test_weights_that_cancel_are_not_taken_where_float32_cannot_hold_them():
    inputs, targets = parameters_of_a_body()
    torch.manual_seed(0)
    model = build_model(PodRbfConfig(), ProblemShape(space=(5, 3), n_inputs=5, n_outputs=1))
    model.fit(in_parts((inputs[:250], targets[:250])))
    with torch.no_grad():
        in_float32 = model.eval()(inputs[250:])
        exactly = model.double()(inputs[250:].double())
    assert relative(in_float32, targets[250:]) < 0.02
    assert relative(in_float32.double(), exactly) < 1e-3


def test_a_network_between_principal_directions_learns_what_parameters_do():
    inputs, targets = parameters_of_a_body()
    shape = ProblemShape(space=(5, 3), n_inputs=5, n_outputs=1)
    torch.manual_seed(0)
    model = build_model(PodNnConfig(width=64, n_steps=1500), shape)
    model.fit(in_parts((inputs[:250], targets[:250])))
    with torch.no_grad():
        found = model.eval()(inputs[250:])
    assert relative(found, targets[250:]) < 0.03
    ridge = build_model(RidgeConfig(), shape)
    ridge.fit(in_parts((inputs[:250], targets[:250])))
    with torch.no_grad():
        assert relative(found, targets[250:]) < 0.25 * relative(ridge(inputs[250:]), targets[250:])


def test_leaving_one_out_is_what_it_says():
    generator = torch.Generator().manual_seed(4)
    places = torch.randn(9, 2, dtype=torch.float64, generator=generator)
    targets = torch.randn(9, 3, dtype=torch.float64, generator=generator)
    kernel = (-torch.cdist(places, places).square()).exp()
    error, _ = leave_one_out(kernel, 1e-3, targets)
    found = []
    for left in range(9):
        kept = [other for other in range(9) if other != left]
        system = kernel[kept][:, kept] + 1e-3 * torch.eye(8, dtype=torch.float64)
        predicted = kernel[left, kept] @ torch.linalg.solve(system, targets[kept])
        found.append((predicted - targets[left]).norm() / targets[left].norm())
    assert error == pytest.approx(float(torch.stack(found).mean()))


def test_principal_directions_are_orthonormal_and_restore_the_rows():
    rows = torch.randn(6, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    directions, coordinates = principal_directions(rows, most=8)
    torch.testing.assert_close(directions.T @ directions, torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(coordinates @ directions.T, rows)
    fewer, _ = principal_directions(rows, most=2)
    torch.testing.assert_close(fewer, directions[:, :2])


@pytest.mark.parametrize("name", FITTED)
def test_a_trial_computes_a_classical_model_and_trains_nothing(name):
    benchmark = "navier_stokes" if MODELS[name].needs_history else "darcy"
    made = experiment("smoke", benchmark, name)
    shape = made.benchmark.shape
    generator = torch.Generator().manual_seed(6)

    def part(n_samples):
        sizes = (n_samples, *shape.space)
        return Fields(
            torch.rand(*sizes, shape.n_inputs, generator=generator),
            1 + torch.rand(*sizes, shape.n_outputs, generator=generator),
        )

    train = part(8)
    fields = SplitFields(
        BatchesInMemory(train, 4, permutations(8, seed=0)),
        {"train": [train], "validation": [part(2)], "test": [part(3)]},
        in_memory=True,
    )
    trial = Trial(made, fields, torch.device("cpu"))
    assert list(trial.fit()) == []
    assert forward_flops(trial.surrogate.eval(), train.inputs[:1]) >= 0
    assert trial.figures("test")["rel_l2"] < 1
    if name == "mean_field":
        assert trial.figures("test")["rel_l2"] == pytest.approx(trial.error_of_the_mean())
