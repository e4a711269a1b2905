import pytest
import torch

from lsm_core.training.losses import summed_derivative_error


def waves(n_points: int, phase: float = 0.0) -> torch.Tensor:
    """Return one sample of a sine on a periodic axis."""
    angles = 2 * torch.pi * torch.arange(n_points, dtype=torch.float64) / n_points
    return torch.sin(angles + phase).reshape(1, -1, 1)


def test_a_constant_that_is_wrong_costs_nothing_and_a_slope_does() -> None:
    target = waves(64)
    assert summed_derivative_error(target + 3, target, (True,)).item() == pytest.approx(0, abs=1e-9)
    assert summed_derivative_error(1.5 * target, target, (True,)).item() == pytest.approx(0.5)


def test_the_step_between_the_ends_counts_on_a_periodic_axis_alone() -> None:
    target = waves(16)
    predicted = target + torch.linspace(0, 1, 16, dtype=torch.float64).reshape(1, -1, 1)
    inside = summed_derivative_error(predicted, target, (False,)).item()
    around = summed_derivative_error(predicted, target, (True,)).item()
    # The ramp rises by 1/15 a point, and falls by 1 from its end to its beginning.
    slopes = torch.cat([target, target[:, :1]], dim=1).diff(dim=1)
    assert around == pytest.approx(((15 / 15**2 + 1) ** 0.5 / slopes.norm()).item())
    assert inside == pytest.approx((15**-0.5 / slopes[:, :-1].norm()).item())


def test_a_shifted_wave_has_the_same_relative_error_in_value_and_derivative() -> None:
    target, predicted = waves(256), waves(256, phase=0.1)
    values = ((predicted - target).norm() / target.norm()).item()
    assert summed_derivative_error(predicted, target, (True,)).item() == pytest.approx(values)


def test_axes_count_alike_whatever_the_distance_of_their_points() -> None:
    """The same function on a grid ten times as fine along one axis has the same error."""
    target = waves(32).reshape(1, -1, 1, 1) + waves(320).reshape(1, 1, -1, 1)
    error = waves(32, 0.2).reshape(1, -1, 1, 1) + waves(320, 0.2).reshape(1, 1, -1, 1)
    fine = summed_derivative_error(error, target, (True, True)).item()
    same = summed_derivative_error(error[:, :, ::10], target[:, :, ::10], (True, True)).item()
    assert fine == pytest.approx(same, rel=1e-6)


def test_a_field_that_is_constant_along_an_axis_gives_a_finite_error_and_gradient() -> None:
    target = waves(16).reshape(1, -1, 1, 1).expand(1, 16, 4, 1)
    predicted = (target + 0.0).requires_grad_()
    summed_derivative_error(
        predicted + 1e-9 * torch.rand_like(target), target, (True, False)
    ).backward()
    assert predicted.grad is not None
    assert predicted.grad.isfinite().all()


def test_points_in_no_order_have_no_derivatives() -> None:
    assert summed_derivative_error(waves(8), waves(8, 1.0), ()).item() == 0
