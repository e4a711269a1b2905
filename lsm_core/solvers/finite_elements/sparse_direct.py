"""Direct solution of sparse linear systems, by the fastest method that is installed.

MKL Pardiso (package pypardiso, x86-64 only) is several times faster than scipy's SuperLU on the
flow problems here. Both solve to rounding error, so the choice shows only in the last digits.
"""

from abc import ABC, abstractmethod
from copy import copy
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.linalg import splu


class DirectSolver(ABC):
    """Solves a sequence of systems whose matrices have one sparsity pattern, as Newton's do.

    Close it after use: the factors are large, and Pardiso keeps them outside Python's memory.
    """

    @abstractmethod
    def solve(
        self, matrix: csr_array, right_side: Float[np.ndarray, " unknown"]
    ) -> Float[np.ndarray, " unknown"]:
        """Return the solution of one system."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is kept between systems."""


class SuperLu(DirectSolver):
    """Scipy's own sparse factorisation: everywhere available."""

    def solve(
        self, matrix: csr_array, right_side: Float[np.ndarray, " unknown"]
    ) -> Float[np.ndarray, " unknown"]:
        """Return the solution of one system; every system is analysed anew."""
        return splu(matrix.tocsc(), permc_spec="COLAMD").solve(right_side)

    def close(self) -> None:
        """Do nothing: no factors are kept."""


class Pardiso(DirectSolver):
    """MKL Pardiso for real unsymmetric matrices; the order of elimination is found only once."""

    def __init__(self) -> None:
        import pypardiso

        # A copy of the solver that the package makes when it is imported: a new one would search
        # the disk for MKL again, which takes a second.
        self._pardiso: Any = copy(pypardiso.ps)
        self._pardiso.pt = np.zeros_like(self._pardiso.pt)
        self._pardiso.iparm = np.zeros_like(self._pardiso.iparm)
        self._is_analysed = False

    def solve(
        self, matrix: csr_array, right_side: Float[np.ndarray, " unknown"]
    ) -> Float[np.ndarray, " unknown"]:
        """Return the solution of one system, by factorisation, substitution and refinement."""
        # Phases of Pardiso: 1 analyse, 2 factorise, 3 substitute. The public method of pypardiso
        # always starts with 1, which takes as long as 2 and 3 together.
        self._pardiso.set_phase(23 if self._is_analysed else 13)
        solution = self._pardiso._call_pardiso(matrix, right_side)
        self._is_analysed = True
        return solution

    def close(self) -> None:
        """Free the factors, which the library keeps outside Python's memory."""
        self._pardiso.free_memory(everything=True)
        self._is_analysed = False


def direct_solver() -> DirectSolver:
    """Return a Pardiso solver where pypardiso and MKL can be loaded, SuperLU elsewhere."""
    try:
        return Pardiso()
    except (ImportError, OSError):
        return SuperLu()
