import pickle

from lsm_core.solvers.convergence import SolveFailed


def test_a_failed_solve_says_how_far_it_came():
    message = str(SolveFailed("Newton's method", 20, 0.25, 1e-9))
    assert message == (
        "Newton's method did not converge: after 20 iterations the residual is 0.25, "
        "not below the tolerance 1e-09"
    )


def test_a_failed_solve_survives_the_way_back_from_a_worker():
    returned = pickle.loads(pickle.dumps(SolveFailed("Newton's method", 20, 0.25, 1e-9)))
    assert (returned.iterations, returned.residual, returned.tolerance) == (20, 0.25, 1e-9)
    assert "Newton's method" in str(returned)
