import pytest
import torch
from torch import Tensor

from lsm_core.layers.nonuniform_fourier import (
    GridToPoints,
    PointsToGrid,
    mode_phases,
    released_sum_over_modes,
    sum_over_modes,
    sum_over_points,
)

GRIDS = [(12,), (10, 12), (6, 8, 7)]


def uniform_points(grid: tuple[int, ...], batch: int) -> Tensor:
    """Return the points i/n of a periodic grid as a cloud, last axis fastest."""
    axes = [torch.arange(n, dtype=torch.float64) / n for n in grid]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)
    return points.expand(batch, -1, -1)


def kept(spectrum: Tensor, n_modes: int) -> Tensor:
    """Return the modes that the layers keep of `(batch, *mode, channel)`, written with indices."""
    for axis in range(1, spectrum.ndim - 2):
        n = spectrum.shape[axis]
        order = [*range(n_modes), *range(n - n_modes, n)]
        spectrum = spectrum.index_select(axis, torch.tensor(order))
    return spectrum[..., :n_modes, :]


def embedded(modes: Tensor, grid: tuple[int, ...], n_modes: int) -> Tensor:
    """Return the half spectrum of the grid with these modes in it and zeros elsewhere."""
    half = (*grid[:-1], grid[-1] // 2 + 1)
    spectrum = torch.zeros(len(modes), *half, modes.shape[-1], dtype=modes.dtype)
    orders = [[*range(n_modes), *range(n - n_modes, n)] for n in grid[:-1]]
    indices = [torch.tensor(order) for order in [range(len(modes)), *orders, range(n_modes)]]
    spectrum[torch.meshgrid(*indices, indexing="ij")] = modes
    return spectrum


def random_modes(grid: tuple[int, ...], n_modes: int) -> Tensor:
    modes = (2 * n_modes,) * (len(grid) - 1) + (n_modes,)
    return torch.randn(2, *modes, 5, dtype=torch.complex128)


@pytest.mark.parametrize("grid", GRIDS)
def test_the_sum_over_uniform_points_is_the_fft(grid):
    field = torch.randn(2, *grid, 5, dtype=torch.float64)
    phases = mode_phases(uniform_points(grid, 2), 3)
    sums = sum_over_points(field.flatten(1, -2), phases)
    axes = tuple(range(1, len(grid) + 1))
    torch.testing.assert_close(sums, kept(torch.fft.rfftn(field, dim=axes), 3))


@pytest.mark.parametrize("grid", GRIDS)
def test_the_sum_over_modes_is_the_inverse_fft_on_uniform_points(grid):
    modes = random_modes(grid, 3)
    values = sum_over_modes(modes, mode_phases(uniform_points(grid, 2), 3))
    axes = tuple(range(1, len(grid) + 1))
    field = torch.fft.irfftn(embedded(modes, grid, 3), s=grid, dim=axes, norm="forward")
    torch.testing.assert_close(values, field.flatten(1, -2))


@pytest.mark.parametrize("grid", GRIDS)
def test_there_and_back_again_is_the_number_of_points_times_a_smooth_field(grid):
    positions = uniform_points(grid, 1)
    field = (2 + torch.cos(2 * torch.pi * (positions.sum(-1, keepdim=True) - 0.1))) ** 2
    phases = mode_phases(positions, 3)
    back = sum_over_modes(sum_over_points(field, phases), phases)
    torch.testing.assert_close(back, field.shape[1] * field)


def released_by_completion(modes: Tensor, positions: Tensor, n_modes: int) -> Tensor:
    """Return the plane case as released: complete the spectrum by two flips, then sum it all."""
    completed = torch.cat([modes, modes[:, :, 1:].flip(1, 2).conj()], dim=2)
    first = torch.tensor([*range(n_modes), *range(-n_modes, 0)])
    second = torch.tensor([*range(n_modes), *range(1 - n_modes, 0)])
    angle = positions[..., 0, None, None] * first[:, None] + positions[..., 1, None, None] * second
    phases = torch.exp(2j * torch.pi * angle)
    return torch.einsum("bnxy,bxyc->bnc", phases, completed).real


def test_the_released_sum_completes_the_spectrum_by_flipping_it():
    modes, positions = random_modes((10, 12), 3), torch.rand(2, 7, 2, dtype=torch.float64)
    values = released_sum_over_modes(modes, mode_phases(positions, 3), positions)
    torch.testing.assert_close(values, released_by_completion(modes, positions, 3))


def test_the_released_sum_is_not_the_inverse_fft():
    grid = (10, 12)
    modes, positions = random_modes(grid, 3), uniform_points(grid, 2)
    phases = mode_phases(positions, 3)
    right = sum_over_modes(modes, phases)
    released = released_sum_over_modes(modes, phases, positions)
    assert (released - right).norm() > 0.5 * right.norm()


def test_along_one_axis_the_released_sum_is_right():
    modes, positions = random_modes((12,), 3), torch.rand(2, 7, 1, dtype=torch.float64)
    phases = mode_phases(positions, 3)
    torch.testing.assert_close(
        released_sum_over_modes(modes, phases, positions), sum_over_modes(modes, phases)
    )


@pytest.mark.parametrize("grid", GRIDS)
def test_both_layers_on_uniform_points_are_the_spectral_convolution_of_the_grid(grid):
    torch.manual_seed(0)
    field = torch.randn(2, *grid, 3, dtype=torch.float64)
    positions = uniform_points(grid, 2)
    phases = mode_phases(positions, 3)
    inward = PointsToGrid(3, 4, 3, grid).double()
    outward = GridToPoints(3, 4, 3, len(grid)).double()
    outward.load_state_dict(inward.state_dict())

    axes = tuple(range(1, len(grid) + 1))
    modes = inward.modes(kept(torch.fft.rfftn(field, dim=axes), 3))
    expected = torch.fft.irfftn(embedded(modes, grid, 3), s=grid, dim=axes)

    torch.testing.assert_close(inward(field.flatten(1, -2), phases), expected)
    at_points = outward(field, phases, positions).unflatten(1, grid)
    torch.testing.assert_close(at_points, expected.numel() / (2 * 4) * expected)


def test_each_mode_has_a_map_of_channels_of_its_own():
    torch.manual_seed(0)
    layer = PointsToGrid(2, 2, 3, (8, 8)).double()
    positions = uniform_points((8, 8), 1)
    wave = torch.cos(2 * torch.pi * (positions[..., :1] - 2 * positions[..., 1:]))
    phases = mode_phases(positions, 3)
    values = torch.cat([wave, 0 * wave], dim=-1)
    before = layer(values, phases)
    with torch.no_grad():
        layer.modes.weight[-1, 2] += 1  # mode (-1, 2), the conjugate of (1, -2)
    changed = layer(values, phases) - before
    assert changed.abs().max() > 0.1
    with torch.no_grad():
        layer.modes.weight[1, 2] += 1  # mode (1, 2), which the field has not
    torch.testing.assert_close(layer(values, phases) - before, changed)


def test_the_order_of_the_points_does_not_matter():
    torch.manual_seed(0)
    layer = PointsToGrid(2, 2, 3, (8, 8)).double()
    positions = torch.rand(1, 9, 2, dtype=torch.float64)
    values = torch.randn(1, 9, 2, dtype=torch.float64)
    order = torch.randperm(9)
    torch.testing.assert_close(
        layer(values, mode_phases(positions, 3)),
        layer(values[:, order], mode_phases(positions[:, order], 3)),
    )
