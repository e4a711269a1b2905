"""Solvers in latent space: the paper's neural spectral block and what replaces it in ablations.

Each maps latent tokens to latent tokens of the same shape and keeps a residual connection.
"""

from dataclasses import dataclass
from math import pi
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.layers.choices import check_choices
from lsm_core.layers.constants import kept_on_device
from lsm_core.layers.forms import suits_kernels
from lsm_core.layers.kernels.patch_attention import Tokens
from lsm_core.layers.kernels.trigonometric_series import series_by_angle_addition
from lsm_core.layers.precision import in_float32
from lsm_core.layers.projectors import Form

SolverKind = Literal["trigonometric", "polynomial", "perceptron", "fourier", "none"]


@dataclass(frozen=True, kw_only=True)
class SolverConfig:
    """How latent tokens are solved for.

    The trigonometric solver has two forms. `release` is what the released code computes: sines
    and cosines of pi k T / (N/2), k = 0 .. N/2 - 1, with coefficients for each channel. `paper`
    is what the paper writes: tokens brought into [0, pi], integer frequencies 1 .. N/2, a
    constant for each channel and coefficients that all channels share.
    """

    kind: SolverKind = "trigonometric"
    n_basis: int = 24
    form: Form = "release"

    def __post_init__(self) -> None:
        check_choices(self, prefix="solver ")
        if self.n_basis < 0 or self.n_basis % 2:
            raise ValueError(f"n_basis must be even and not negative, got {self.n_basis}")


def build_solver(config: SolverConfig, width: int, n_tokens: int) -> nn.Module:
    """Return the solver for tokens of `width` channels, `n_tokens` in each patch."""
    if config.kind == "none" or config.n_basis == 0:
        return nn.Identity()
    if config.kind == "polynomial":
        return PolynomialSolver(width, config.n_basis)
    if config.kind == "perceptron":
        return PerceptronSolver(width)
    if config.kind == "fourier":
        return FourierSolver(width, n_tokens)
    if config.form == "paper":
        return BoundedNeuralSpectral(width, config.n_basis)
    return NeuralSpectral(width, config.n_basis)


@kept_on_device
def wave_numbers(first: int, count: int) -> Float64[np.ndarray, " count"]:
    """Return the whole numbers from the first on."""
    return np.arange(first, first + count, dtype=np.float64)


@in_float32
def trigonometric_series(
    tokens: Float[Tensor, "*rows channel"],
    sine_weights: Float[Tensor, "coefficients n_frequencies"],
    cosine_weights: Float[Tensor, "coefficients n_frequencies"],
    step: float,
    first: Literal[0, 1],
) -> Float[Tensor, "*rows channel"]:
    """Return the sum over k of a_k sin(k step T) + b_k cos(k step T), k = first, first + 1, ...

    There is one row of weights for each channel, or one that all channels share.
    """
    if suits_kernels(tokens):
        return series_by_angle_addition(tokens, sine_weights, cosine_weights, step, first)
    angles = tokens.unsqueeze(-1) * (step * wave_numbers(first, sine_weights.shape[1], like=tokens))
    basis = torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)
    return (basis * torch.cat([sine_weights, cosine_weights], dim=1)).sum(-1)


class NeuralSpectral(nn.Module):
    """The neural spectral block as released.

    T_y = T_x + sum over k of w_sin,k sin(pi k T_x / n) + w_cos,k cos(pi k T_x / n), with
    n = N/2 and k = 0 .. n-1. The cosine of k = 0 plays the constant w_0; its sine is zero.
    """

    def __init__(self, width: int, n_basis: int) -> None:
        super().__init__()
        self.sine_weights = nn.Parameter(torch.rand(width, n_basis // 2) / width)
        self.cosine_weights = nn.Parameter(torch.rand(width, n_basis // 2) / width)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the solved tokens."""
        step = pi / self.sine_weights.shape[1]
        return tokens + trigonometric_series(
            tokens, self.sine_weights, self.cosine_weights, step, first=0
        )


class BoundedNeuralSpectral(nn.Module):
    """The neural spectral block as the paper writes it, of tokens in [0, pi].

    T_y = T_x + w_0 + sum over k = 1 .. N/2 of w_sin,k sin(k T_x) + w_cos,k cos(k T_x). The paper
    leaves the normalisation open; pi times the logistic function is ours.
    """

    def __init__(self, width: int, n_basis: int) -> None:
        super().__init__()
        self.constant = nn.Parameter(torch.rand(width) / width)
        self.sine_weights = nn.Parameter(torch.rand(1, n_basis // 2) / width)
        self.cosine_weights = nn.Parameter(torch.rand(1, n_basis // 2) / width)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the solved tokens."""
        return self.solve(pi * torch.sigmoid(tokens))

    def solve(self, tokens: Tokens) -> Tokens:
        """Return the block's value for tokens that lie in [0, pi] already."""
        return (
            tokens
            + self.constant
            + trigonometric_series(tokens, self.sine_weights, self.cosine_weights, 1.0, first=1)
        )


class PolynomialSolver(nn.Module):
    """Legendre polynomials of the tokens in place of sines and cosines.

    The degrees are 0 .. N-1, so there are as many coefficients as in the neural spectral block.
    The tokens go through tanh first: outside [-1, 1] the polynomials grow without bound.
    """

    def __init__(self, width: int, n_basis: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.rand(width, n_basis) / width)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the solved tokens."""
        position = torch.tanh(tokens)
        previous, polynomial = torch.ones_like(position), position
        total = tokens + self.weights[:, 0]
        for degree in range(1, self.weights.shape[1]):
            total = total + self.weights[:, degree] * polynomial
            following = (2 * degree + 1) * position * polynomial - degree * previous
            previous, polynomial = polynomial, following / (degree + 1)
        return total


class PerceptronSolver(nn.Module):
    """A perceptron with one hidden layer over the channels of each token: one global operator."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the solved tokens."""
        return tokens + self.output(functional.gelu(self.hidden(tokens)))


class FourierSolver(nn.Module):
    """One Fourier layer along the tokens of a patch, as in FNO: one global operator.

    The tokens have no order, so that their Fourier transform means nothing; the paper shows this
    solver for comparison.
    """

    def __init__(self, width: int, n_tokens: int) -> None:
        super().__init__()
        n_modes = n_tokens // 2 + 1
        # Real and imaginary parts, because fused optimisers do not take complex numbers.
        self.spectral_weights = nn.Parameter(torch.rand(n_modes, width, width, 2) / width**2)
        self.local = nn.Linear(width, width)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the solved tokens."""
        modes = torch.fft.rfft(tokens, dim=1)
        mixed = torch.einsum("pki,kio->pko", modes, torch.view_as_complex(self.spectral_weights))
        spectral = torch.fft.irfft(mixed, n=tokens.shape[1], dim=1)
        return tokens + functional.gelu(spectral + self.local(tokens))
