from dataclasses import asdict, replace
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lsm_core.models.catalogue import MODELS, build_model
from lsm_core.models.entry import Task
from lsm_core.models.fno import FnoConfig
from lsm_core.models.lsm import release_form
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.models.released_weights import ReleasedSettings, from_released, renamed
from lsm_core.problems.shape import ProblemShape
from tests.lsm_core.models.released_options import settings_from
from tests.lsm_core.models.small_configs import SMALL
from tests.lsm_core.models.straightforward import StraightforwardLsm

REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "lsm_irregular.npz"
N_CODE = 42
BODIES = {
    "lsm": release_form(width=8, n_scales=3),
    "fno": FnoConfig(width=6, n_modes=4, n_layers=2),
}
OTHER_BODIES = {
    name: config
    for name, config in SMALL.items()
    if name not in BODIES
    and not MODELS[name].needs_history
    and not MODELS[name].takes_points
    and not MODELS[name].is_fitted
}


def small_model(
    body: str = "lsm",
    *,
    n_code: int = 5,
    n_outputs: int = 1,
    latent_shape: tuple[int, ...] = (16, 16),
) -> nn.Module:
    torch.manual_seed(0)
    config = PointCloudConfig(
        body=(BODIES | OTHER_BODIES)[body],
        n_features=6 if body in OTHER_BODIES else None,
        latent_shape=latent_shape,
        n_modes=4,
        deformation_width=8,
    )
    n_inputs = len(latent_shape) + n_code
    return build_model(config, ProblemShape(space=(30,), n_inputs=n_inputs, n_outputs=n_outputs))


def cloud(
    batch: int = 3, n_points: int = 30, n_code: int = 5, n_dims: int = 2, seed: int = 1
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    positions = torch.rand(batch, n_points, n_dims, generator=generator)
    code = torch.rand(batch, 1, n_code, generator=generator)
    return torch.cat([positions, code.expand(-1, n_points, -1)], dim=-1)


class StraightforwardPoints(StraightforwardLsm):
    """The released point-cloud model in the plainest way, names and layouts as released."""

    def __init__(self, d_model: int, latent: int, n_modes: int, **settings) -> None:
        super().__init__(in_dim=0, d_model=d_model, **settings)
        self.latent, self.n_modes = latent, n_modes
        for name in ("fftproject_in", "fftproject_out"):
            self.add_module(name, nn.Module())
            for part in ("weights1", "weights2"):
                weight = torch.rand(d_model, d_model, n_modes, n_modes, dtype=torch.complex128)
                getattr(self, name).register_parameter(part, nn.Parameter(weight / d_model**2))
        self.convproject_in = nn.Conv2d(2, d_model, 1)
        self.convproject_out = nn.Conv1d(2, d_model, 1)
        self.iphi = nn.ModuleDict(
            {
                "fc0": nn.Linear(4, 32),
                "fc_code": nn.Linear(N_CODE, 32),
                "fc_no_code": nn.Linear(96, 128),
                "fc1": nn.Linear(128, 128),
                "fc2": nn.Linear(128, 128),
                "fc3": nn.Linear(128, 128),
                "fc4": nn.Linear(128, 2),
            }
        )

    def released_state(self) -> dict[str, Tensor]:
        return {name.replace("iphi.", "iphi/"): x for name, x in self.state_dict().items()}

    def deform(self, x: Tensor, code: Tensor) -> Tensor:
        angle = torch.atan2(x[..., 1] - 1e-4, x[..., 0] - 1e-4)
        radius = ((x - 1e-4) ** 2).sum(-1).sqrt()
        described = torch.stack([x[..., 0], x[..., 1], angle, radius], dim=-1)
        waves = torch.cat(
            [described[..., i, None] * pi * 2 ** torch.arange(8) for i in range(4)], -1
        )
        lifted = self.iphi["fc0"](described)
        of_code = self.iphi["fc_code"](code)[:, None].repeat(1, x.shape[1], 1)
        h = torch.cat([of_code, lifted, torch.sin(waves), torch.cos(waves)], dim=-1)
        for name in ("fc1", "fc2", "fc3"):
            h = torch.tanh(self.iphi[name](h))
        return x + x * self.iphi["fc4"](h)

    def angles(self, x: Tensor) -> Tensor:
        m = self.n_modes
        first = torch.tensor([*range(m), *range(-m, 0)])
        second = torch.tensor([*range(m), *range(1 - m, 0)])
        return 2 * pi * (x[..., 0, None, None] * first[:, None] + x[..., 1, None, None] * second)

    def mix(self, layer: nn.Module, modes: Tensor) -> Tensor:
        m, product = self.n_modes, "bixy,ioxy->boxy"
        return torch.cat(
            [
                torch.einsum(product, modes[:, :, :m, :m], layer.weights1),
                torch.einsum(product, modes[:, :, -m:, :m], layer.weights2),
            ],
            dim=2,
        )

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        m, side = self.n_modes, self.latent
        angles = self.angles(self.deform(x, code))
        values = self.fc0(x).mT + 0j
        modes = torch.einsum("bcn,bnxy->bcxy", values, torch.exp(-1j * angles))
        spectrum = torch.zeros(*values.shape[:2], side, side // 2 + 1, dtype=torch.complex128)
        mixed = self.mix(self.fftproject_in, modes)
        spectrum[:, :, :m, :m], spectrum[:, :, -m:, :m] = mixed[:, :, :m], mixed[:, :, m:]
        axis = torch.linspace(0, 1, side).double()
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"))[None]
        features = torch.fft.irfft2(spectrum, s=(side, side)) + self.convproject_in(grid)

        scales = [self.inc(functional.gelu(features))]
        for i in range(1, 5):
            scales.append(getattr(self, f"down{i}")(scales[-1]))
        solved = [getattr(self, f"process{i}")(h) for i, h in enumerate(scales, start=1)]
        features = solved[4]
        for i in range(1, 5):
            features = getattr(self, f"up{i}")(features, solved[4 - i])
        features = self.outc(features)

        modes = self.mix(self.fftproject_out, torch.fft.rfft2(features))
        modes = torch.cat([modes, modes[..., 1:].flip(-1, -2).conj()], dim=-1)
        values = torch.einsum("bcxy,bnxy->bcn", modes, torch.exp(1j * angles)).real
        values = (values + self.convproject_out(x.mT)).mT
        return self.fc2(functional.gelu(self.fc1(values)))


@pytest.mark.parametrize(
    ("latent", "patch", "said"), [(32, 2, True), (32, 1, True), (96, 6, False), (96, 3, False)]
)
@pytest.mark.parametrize("training", [True, False])
def test_the_model_equals_the_released_one_step_by_step(training, latent, patch, said):
    """The latent grid is 96 wide unless the settings say another, whatever the patches are."""
    torch.manual_seed(0)
    settings = {"out_dim": 2, "d_model": 8, "patch_size": (patch, patch), "padding": (0, 0)}
    oracle = StraightforwardPoints(latent=latent, n_modes=5, **settings).double().train(training)
    state = {k: v.clone() for k, v in oracle.released_state().items()}
    space = (latent, latent) if said else None
    options = ReleasedSettings(in_dim=2, space=space, **settings)
    model = from_released(state, options).double().train(training)
    # A model takes weights in float32 until it is told otherwise.
    model.load_state_dict(renamed(state))
    points = cloud(batch=2, n_points=40, n_code=N_CODE).double()

    expected = oracle(points[..., :2], points[:, 0, 2:])
    torch.testing.assert_close(model(points), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not REFERENCE.exists(), reason="the released reference values are not here")
def test_the_released_reference_output_is_reproduced():
    stored = np.load(REFERENCE)
    state = {k.removeprefix("state/"): stored[k] for k in stored if k[:5] in ("state", "iphi/")}
    options = {k.removeprefix("config/"): stored[k][()] for k in stored if k[:6] == "config"}
    model = from_released(state, settings_from(options)).eval()
    positions, code = torch.from_numpy(stored["input"]), torch.from_numpy(stored["code"])
    code = code.unsqueeze(1).expand(-1, positions.shape[1], -1)
    inputs = torch.cat([positions, code], dim=-1)
    expected = torch.from_numpy(stored["eval_output"])

    with torch.no_grad():
        difference = (model(inputs) - expected).abs().max() / expected.abs().max()
        assert difference < 1e-5
        model.to_points.released_inverse = False
        right = model(inputs)
    assert (right - expected).norm() > 0.05 * expected.norm()


def test_a_released_state_with_an_unknown_name_is_refused():
    settings = {"out_dim": 1, "d_model": 8, "patch_size": (2, 2), "padding": (0, 0)}
    state = StraightforwardPoints(latent=32, n_modes=5, **settings).released_state()
    with pytest.raises(ValueError, match="surprise"):
        from_released({**state, "surprise": torch.ones(1)}, ReleasedSettings(in_dim=2, **settings))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("n_code", [0, 5])
@pytest.mark.parametrize("n_dims", [1, 2, 3])
def test_values_come_out_at_every_point(body, n_code, n_dims):
    latent_shape = (16, 12, 8)[:n_dims]
    model = small_model(body, n_code=n_code, n_outputs=2, latent_shape=latent_shape)
    predicted = model(cloud(2, 11, n_code, n_dims))
    assert predicted.shape == (2, 11, 2)
    assert predicted.std() > 0


def test_the_order_of_the_points_does_not_matter():
    model, points = small_model().eval(), cloud()
    order = torch.randperm(points.shape[1])
    torch.testing.assert_close(model(points[:, order]), model(points)[:, order])


def test_samples_do_not_see_each_other():
    model, points = small_model().eval(), cloud()
    torch.testing.assert_close(model(points[1:2]), model(points)[1:2])


def test_the_code_is_read_at_the_first_point_alone():
    model, points = small_model().eval(), cloud()
    elsewhere, first = points.clone(), points.clone()
    elsewhere[:, 1:, 2:] += 1
    first[:, 0, 2:] += 1
    torch.testing.assert_close(model(elsewhere), model(points))
    assert (model(first) - model(points)).abs().max() > 1e-4


def test_the_values_at_points_depend_on_the_points_around_them():
    model, points = small_model().eval(), cloud()
    model, points = model.double(), points.double()
    moved = points.clone()
    moved[:, -1, :2] = 0.5
    assert (model(moved) - model(points))[:, :-1].abs().min() > 1e-9


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("n_code", [0, 5])
def test_every_parameter_gets_a_gradient(body, n_code):
    model = small_model(body, n_code=n_code)
    model(cloud(n_code=n_code)).square().sum().backward()
    # The bias of a key cancels in the softmax over points.
    silent = [
        name
        for name, parameter in model.named_parameters()
        if not name.endswith("key.bias") and not parameter.grad.abs().max() > 0
    ]
    assert silent == []


@pytest.mark.parametrize("body", OTHER_BODIES)
def test_every_grid_model_works_between_points(body):
    model = small_model(body, n_outputs=2).double().eval()
    points = cloud(batch=2).double()
    predicted = model(points)
    assert predicted.shape == (2, 30, 2)
    torch.testing.assert_close(model(points[:1]), predicted[:1])
    predicted.square().sum().backward()
    silent = [
        name
        for name, parameter in model.named_parameters()
        if not name.endswith("key.bias") and not parameter.grad.abs().max() > 1e-15
    ]
    assert silent == []


def test_the_features_on_the_grid_are_as_many_as_said():
    config = PointCloudConfig(body=OTHER_BODIES["mwt"], n_features=7)
    assert config.latent_problem == ProblemShape(space=(96, 96), n_inputs=7, n_outputs=7)
    assert PointCloudConfig(body=BODIES["lsm"]).width == 8
    assert PointCloudConfig(body=BODIES["fno"]).width == 6
    with pytest.raises(ValueError, match="fno of width 6 reads and writes as many features, not 7"):
        build_model(
            PointCloudConfig(body=BODIES["fno"], n_features=7),
            ProblemShape(space=(30,), n_inputs=2, n_outputs=1),
        )


def test_the_parameters_are_counted_as_published():
    shape = ProblemShape(space=(972,), n_inputs=2 + N_CODE, n_outputs=1)
    model = build_model(PointCloudConfig(body=release_form(width=32)), shape)
    deformation = sum(p.numel() for p in model.deformation.parameters())
    # The released deformation also has an unused layer from 96 to 128 for shapes without a code.
    assert deformation == 63_746 - (96 * 128 + 128)
    complex_weights = sum(
        p.numel() // 2 for name, p in model.named_parameters() if name.endswith("modes.weight")
    )
    total = sum(p.numel() for p in model.parameters()) - deformation
    assert total - complex_weights == 5_402_785


def test_the_state_is_complete():
    model, points = small_model().eval(), cloud()
    torch.manual_seed(7)
    other = build_model(
        PointCloudConfig(body=BODIES["lsm"], latent_shape=(16, 16), n_modes=4, deformation_width=8),
        ProblemShape(space=(30,), n_inputs=7, n_outputs=1),
    ).eval()
    assert not torch.allclose(other(points), model(points))
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(points), model(points))


def test_a_configuration_is_plain_data():
    config = PointCloudConfig(body=BODIES["fno"])
    assert asdict(config)["body"]["width"] == 6
    assert replace(config, released_inverse=True) != config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latent_shape": (16, 8), "n_modes": 5}, "has not 5 modes"),
        ({"n_modes": 0}, "has not 0 modes"),
        ({"deformation_width": 3}, "deformation_width must be at least 4"),
    ],
)
def test_a_wrong_configuration_says_so(settings, message):
    with pytest.raises(ValueError, match=message):
        PointCloudConfig(body=BODIES["fno"], **settings)


def test_points_without_coordinates_are_refused():
    shape = ProblemShape(space=(30,), n_inputs=1, n_outputs=1)
    with pytest.raises(ValueError, match="1 inputs cannot hold points with 2 coordinates"):
        build_model(PointCloudConfig(body=BODIES["fno"]), shape)


@pytest.mark.parametrize("body", [*BODIES, *OTHER_BODIES])
def test_places_without_a_point_change_nothing(body: str) -> None:
    torch.manual_seed(0)
    config = PointCloudConfig(
        body=(BODIES | OTHER_BODIES)[body],
        n_features=6 if body in OTHER_BODIES else None,
        latent_shape=(16, 16),
        n_modes=4,
        deformation_width=8,
        n_fields=1,
        averaged=True,
    )
    model = build_model(config, ProblemShape(space=(30,), n_inputs=5, n_outputs=2)).eval()
    inputs = cloud(n_code=3)
    for garbage, n_more in ((1e6, 7), (float("nan"), 20)):
        more = torch.full((3, n_more, 5), garbage)
        is_there = torch.cat([torch.ones(3, 30), torch.zeros(3, n_more)], dim=1).bool()
        padded = model(torch.cat([inputs, more], dim=1), is_there)
        assert padded.isfinite().all()
        assert torch.allclose(padded[:, :30], model(inputs), atol=1e-5)


def test_a_field_at_points_is_read_point_by_point() -> None:
    config = PointCloudConfig(
        body=BODIES["fno"], latent_shape=(16, 16), n_modes=4, deformation_width=8, n_fields=1
    )
    torch.manual_seed(0)
    model = build_model(config, ProblemShape(space=(30,), n_inputs=3, n_outputs=1)).eval()
    inputs = cloud(n_code=1)
    changed = inputs.clone()
    changed[0, 7, 2] += 1
    assert not torch.allclose(model(inputs)[0], model(changed)[0])
    assert torch.equal(model(inputs)[1:], model(changed)[1:])


@pytest.mark.parametrize("name", ["transolver", "lno", "flare"])
def test_models_of_points_do_not_see_places_without_one(name: str) -> None:
    torch.manual_seed(0)
    config = experiment_config(name)
    model = build_model(config, ProblemShape(space=(30,), n_inputs=5, n_outputs=2)).eval()
    inputs = cloud(n_code=3)
    more = torch.full((3, 9, 5), float("nan"))
    is_there = torch.cat([torch.ones(3, 30), torch.zeros(3, 9)], dim=1).bool()
    padded = model(torch.cat([inputs, more], dim=1), is_there)
    assert padded.isfinite().all()
    assert torch.allclose(padded[:, :30], model(inputs), atol=1e-5)


def experiment_config(name: str) -> Any:
    task = Task(
        preset="smoke",
        n_dims=2,
        is_periodic=False,
        steps_through_time=False,
        quick_modes=None,
        released_width=32,
        is_scattered=True,
        reads_others=True,
    )
    return MODELS[name].preset(task)  # type: ignore[index]
