import pytest
import torch
from torch import nn

from lsm_core.evaluation import roofline
from lsm_core.evaluation.roofline import RTX_3090, Gpu, Work, count_work, estimate
from lsm_core.models.fno import FnoConfig
from lsm_core.problems.shape import ProblemShape

SHAPE = ProblemShape(space=(32, 32), n_inputs=1, n_outputs=1)


def work(*kernels: tuple[int, int], n_views: int = 0) -> Work:
    return Work(kernels=kernels, n_views=n_views, n_parameters=0)


def test_a_product_of_matrices_is_counted_with_its_bytes_and_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roofline, "build_model", lambda *_: nn.Linear(1, 1, bias=False))
    counted = count_work(FnoConfig(), SHAPE)
    # Forward, and the gradient of the weight: 1024 products and sums each.
    assert counted.flops == 2 * 2 * 32 * 32
    assert (2 * 32 * 32 + 1) * 4 in [size for size, _ in counted.kernels]
    assert counted.n_parameters == 1


def test_a_step_takes_as_long_as_what_bounds_it() -> None:
    gpu = Gpu(name="round", flops=1e12 / roofline.SHARE_OF_PEAK, bandwidth=1e12)
    gpu = Gpu(name="round", flops=gpu.flops, bandwidth=1e12 / roofline.SHARE_OF_BANDWIDTH)
    moving = estimate(work((10**10, 10**9)), gpu)
    assert (moving.step_seconds, moving.bound) == (pytest.approx(0.01, rel=1e-3), "memory")
    counting = estimate(work((10**9, 10**10)), gpu)
    assert (counting.step_seconds, counting.bound) == (pytest.approx(0.01, rel=1e-3), "arithmetic")
    launching = estimate(work(*[(4, 0)] * 1000, n_views=1000), gpu)
    assert launching.bound == "launches"
    assert launching.step_seconds == pytest.approx(
        1008 * roofline.LAUNCH_SECONDS + 1000 * roofline.VIEW_SECONDS
    )


def test_nothing_is_computed_and_launches_do_not_grow_with_the_field() -> None:
    small = count_work(FnoConfig(width=4, n_modes=4), SHAPE)
    large = ProblemShape(space=(1024, 1024), n_inputs=1, n_outputs=1)
    huge = count_work(FnoConfig(width=4, n_modes=4), large, batch_size=1000)  # a terabyte of it
    assert huge.n_launches < 1.1 * small.n_launches  # another order of the axes may pay
    assert huge.n_bytes > 10**5 * small.n_bytes
    assert estimate(huge, RTX_3090).bound == "memory"
    assert torch.get_default_device().type == "cpu"
