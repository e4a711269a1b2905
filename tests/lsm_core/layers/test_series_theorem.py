"""Theorem 3.5 of the paper: |f(x) - f_N(x)| <= K ln N / N on [0, pi], with one K for all N and f.

The proof continues g(x) = f(x) - x evenly to a function of period 2 pi and takes its Fourier
coefficients for the weights of the neural spectral block. K is the same for all functions whose
g has Lipschitz constant 1; the error of others is measured in units of this constant.
"""

from collections.abc import Callable
from math import log, pi

import numpy as np
import pytest
import torch

from lsm_core.layers.neural_spectral import BoundedNeuralSpectral

Function = Callable[[np.ndarray], np.ndarray]
K = 1.5
SIZES = (8, 16, 32, 64, 128, 256, 512)

LIPSCHITZ_FUNCTIONS: dict[str, tuple[Function, float]] = {
    # name: the function and the Lipschitz constant of f(x) - x
    "a kink": (lambda x: np.abs(x - 1), 2.0),
    "two kinks": (lambda x: np.abs(x - 1) - 0.5 * np.abs(x - 2.5), 1.5),
    "clipped": (lambda x: np.maximum(x, 2.0), 1.0),
    "a zigzag": (lambda x: 2 * np.abs(x - np.round(x)), 3.0),
    "zero": (np.zeros_like, 1.0),
    "sine": (np.sin, 2.0),
    "exponential": (lambda x: np.exp(-x), 2.0),
}


def proof_block(function: Function, n_basis: int, n_nodes: int = 1 << 16) -> BoundedNeuralSpectral:
    """Return the block with the weights of the proof, integrals by the trapezoidal rule."""
    nodes = 2 * pi * np.arange(n_nodes) / n_nodes
    mirrored = np.minimum(nodes, 2 * pi - nodes)
    # On equidistant nodes the rule is the FFT: the means of g cos(kt) and of -g sin(kt).
    means = np.fft.rfft(function(mirrored) - mirrored)[: n_basis // 2 + 1] / n_nodes
    block = BoundedNeuralSpectral(1, n_basis).double()
    with torch.no_grad():
        block.constant.fill_(means[0].real)
        block.sine_weights.copy_(torch.from_numpy(-2 * means[1:].imag))
        block.cosine_weights.copy_(torch.from_numpy(2 * means[1:].real))
    return block


def uniform_error(function: Function, n_basis: int) -> float:
    points = np.linspace(0, pi, 4001)
    tokens = torch.from_numpy(points).reshape(1, -1, 1)
    with torch.no_grad():
        approximation = proof_block(function, n_basis).solve(tokens).flatten().numpy()
    return float(np.abs(approximation - function(points)).max())


def worst_function(n_basis: int) -> Function:
    """Return the f whose g turns with the last partial sum: the worst of Lipschitz constant 1.

    Kolmogorov (1935): over such g the error of n frequencies reaches 4 ln n / (pi^2 n) + O(1/n).
    """
    frequency = (n_basis + 1) / 2
    return lambda x: x + np.arccos(np.cos(frequency * x)) / frequency


@pytest.mark.parametrize("name", LIPSCHITZ_FUNCTIONS)
def test_the_error_is_at_most_k_ln_n_over_n(name):
    function, lipschitz = LIPSCHITZ_FUNCTIONS[name]
    for n_basis in SIZES:
        assert uniform_error(function, n_basis) <= K * lipschitz * log(n_basis) / n_basis


@pytest.mark.parametrize("name", LIPSCHITZ_FUNCTIONS)
def test_the_error_falls_at_least_as_fast_as_ln_n_over_n(name):
    function, _ = LIPSCHITZ_FUNCTIONS[name]
    errors = np.array([uniform_error(function, n_basis) for n_basis in SIZES])
    bound = np.log(SIZES) / np.array(SIZES)
    measured, claimed = (np.polyfit(np.log(SIZES), np.log(e), 1)[0] for e in (errors, bound))
    assert measured <= claimed


def test_the_worst_function_for_each_n_keeps_to_the_same_bound():
    for n_basis in SIZES:
        assert uniform_error(worst_function(n_basis), n_basis) <= K * log(n_basis) / n_basis


def test_the_logarithm_is_needed():
    errors = np.array([uniform_error(worst_function(n), n) for n in SIZES])
    frequencies = np.array(SIZES) / 2
    growth = np.diff(errors * frequencies) / np.diff(np.log(frequencies))
    assert (np.diff(np.abs(growth - 4 / pi**2)) < 0).all()
    assert growth[-1] == pytest.approx(4 / pi**2, rel=0.02)


def test_a_function_made_of_the_basis_is_met_exactly():
    def function(x: np.ndarray) -> np.ndarray:
        return x + 2 + np.cos(3 * x)

    assert uniform_error(function, 4) > 0.5
    assert uniform_error(function, 6) < 1e-12


def test_the_even_continuation_leaves_no_sines():
    block = proof_block(LIPSCHITZ_FUNCTIONS["two kinks"][0], 16)
    assert block.sine_weights.abs().max() < 1e-12
    assert block.cosine_weights.abs().max() > 0.1
