from math import pi

import numpy as np
import pytest
import torch

from lsm_core.layers.neural_spectral import (
    BoundedNeuralSpectral,
    NeuralSpectral,
    PolynomialSolver,
    SolverConfig,
    build_solver,
)


def test_the_released_block_sums_sines_and_cosines_of_fractions_of_pi():
    solver = NeuralSpectral(2, 8)
    tokens = torch.randn(3, 4, 2)
    expected = tokens.clone()
    for k in range(4):
        expected += solver.sine_weights[:, k] * torch.sin(pi * k / 4 * tokens)
        expected += solver.cosine_weights[:, k] * torch.cos(pi * k / 4 * tokens)
    torch.testing.assert_close(solver(tokens), expected)


def test_the_papers_block_sees_tokens_between_zero_and_pi():
    solver = BoundedNeuralSpectral(2, 8)
    tokens = torch.randn(3, 4, 2) * 10
    bounded = pi * torch.sigmoid(tokens)
    expected = bounded + solver.constant
    for k in range(1, 5):
        expected = expected + solver.sine_weights[0, k - 1] * torch.sin(k * bounded)
        expected = expected + solver.cosine_weights[0, k - 1] * torch.cos(k * bounded)
    torch.testing.assert_close(solver(tokens), expected)


def test_the_polynomials_are_legendres():
    solver = PolynomialSolver(1, 6)
    tokens = torch.linspace(-2, 2, 9).reshape(1, 9, 1)
    series = np.polynomial.legendre.legval(
        np.tanh(tokens.numpy()), solver.weights[0].detach().numpy()
    )
    torch.testing.assert_close(
        solver(tokens), tokens + torch.from_numpy(series).float(), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["trigonometric", "polynomial", "perceptron", "fourier"])
def test_every_solver_keeps_shape_and_changes_tokens(kind):
    solver = build_solver(SolverConfig(kind=kind, n_basis=8), width=6, n_tokens=3)
    tokens = torch.randn(5, 3, 6)
    solved = solver(tokens)
    assert solved.shape == tokens.shape
    assert (solved - tokens).abs().max() > 1e-3


def test_no_basis_is_no_solver():
    tokens = torch.randn(2, 3, 4)
    for config in (SolverConfig(n_basis=0), SolverConfig(kind="none")):
        assert torch.equal(build_solver(config, width=4, n_tokens=3)(tokens), tokens)


def test_an_odd_number_of_basis_operators_is_refused():
    with pytest.raises(ValueError, match="even"):
        SolverConfig(n_basis=7)
