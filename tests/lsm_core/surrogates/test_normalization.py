import pytest
import torch

from lsm_core.surrogates.normalization import Moments, fit_normalization


@pytest.fixture
def fields() -> torch.Tensor:
    torch.manual_seed(0)
    return 5 + 3 * torch.randn(200, 4, 6, 2)


def test_pointwise_statistics_are_of_every_point(fields: torch.Tensor) -> None:
    encoded = fit_normalization("pointwise", fields).encode(fields)
    torch.testing.assert_close(encoded.mean(0), torch.zeros(4, 6, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(encoded.std(0), torch.ones(4, 6, 2), atol=1e-4, rtol=0)


def test_channel_statistics_are_of_all_points_and_fit_any_grid(fields: torch.Tensor) -> None:
    normalization = fit_normalization("channel", fields)
    encoded = normalization.encode(fields)
    torch.testing.assert_close(encoded.mean((0, 1, 2)), torch.zeros(2), atol=1e-5, rtol=0)
    assert normalization.encode(torch.zeros(1, 9, 9, 2)).shape == (1, 9, 9, 2)


@pytest.mark.parametrize("scheme", ["none", "pointwise", "channel"])
def test_decoding_undoes_encoding(scheme: str, fields: torch.Tensor) -> None:
    normalization = fit_normalization(scheme, fields)
    torch.testing.assert_close(normalization.decode(normalization.encode(fields)), fields)


def test_none_leaves_values_as_they_are(fields: torch.Tensor) -> None:
    assert torch.equal(fit_normalization("none", fields).encode(fields), fields)


def test_a_point_where_all_samples_agree_stays_finite() -> None:
    fields = torch.zeros(10, 3, 1)
    assert fit_normalization("pointwise", fields).encode(fields).isfinite().all()


def test_moments_of_parts_are_those_of_the_whole(fields: torch.Tensor) -> None:
    parts = Moments.of(fields.split(7))
    double = fields.double()
    torch.testing.assert_close(parts.mean, double.mean(0))
    torch.testing.assert_close(parts.std, double.std(0))
    mean, std = parts.over_points()
    torch.testing.assert_close(mean, double.mean((0, 1, 2)))
    torch.testing.assert_close(std, double.std((0, 1, 2)))
