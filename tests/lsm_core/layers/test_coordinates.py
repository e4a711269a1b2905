import torch

from lsm_core.layers.coordinates import unit_coordinates


def test_coordinates_run_from_zero_to_one_along_their_own_axis():
    coordinates = unit_coordinates((3, 5))
    assert coordinates.shape == (3, 5, 2)
    assert torch.equal(coordinates[:, 2, 0], torch.tensor([0, 0.5, 1]))
    assert torch.equal(coordinates[1, :, 1], torch.tensor([0, 0.25, 0.5, 0.75, 1]))
