"""What an iterative solver says when it stops short of its tolerance."""


class SolveFailed(RuntimeError):
    """An iterative solve that did not reach its tolerance, with what it did reach.

    The four facts are also the arguments of the exception, so that it survives pickling on its way
    back from a worker process.
    """

    def __init__(self, solver: str, iterations: int, residual: float, tolerance: float) -> None:
        super().__init__(solver, iterations, residual, tolerance)
        self.solver = solver
        self.iterations = iterations
        self.residual = residual
        self.tolerance = tolerance

    def __str__(self) -> str:
        return (
            f"{self.solver} did not converge: after {self.iterations} iterations the residual is "
            f"{self.residual:.3g}, not below the tolerance {self.tolerance:.3g}"
        )
