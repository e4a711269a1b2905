from dataclasses import replace

import pytest
import torch
from torch import nn

from lsm_core.surrogates.normalization import fit_normalization
from lsm_core.surrogates.rollout import Rollout
from lsm_core.surrogates.surrogate import Surrogate
from lsm_core.training.batches import BatchesInMemory, Fields, permutations
from lsm_core.training.config import TrainingConfig
from lsm_core.training.loop import BatchReport, Diverged, EpochReport, fit, train_step
from lsm_core.training.state import TrainingState, model_weights, start_training

CONFIG = TrainingConfig(epochs=6, batch_size=4, learning_rate=0.01, schedule="one_cycle")


def problem() -> Fields:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(10, 8, 2, generator=generator)
    return Fields(inputs, inputs[..., :1] * 3 - inputs[..., 1:])


def network() -> Surrogate:
    torch.manual_seed(1)
    fields = problem()
    model = nn.Sequential(nn.Linear(2, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))
    return Surrogate(
        model,
        fit_normalization("channel", fields.inputs),
        fit_normalization("channel", fields.targets),
    )


def begin(config: TrainingConfig = CONFIG) -> tuple[TrainingState, BatchesInMemory]:
    fields = problem()
    batches = BatchesInMemory(fields, config.batch_size, permutations(len(fields), seed=0))
    return start_training(network(), config, len(batches)), batches


def epochs(
    state: TrainingState, batches: BatchesInMemory, config: TrainingConfig
) -> list[EpochReport]:
    return [report for report in fit(state, batches, config) if isinstance(report, EpochReport)]


def test_training_brings_the_loss_down() -> None:
    state, batches = begin(replace(CONFIG, epochs=60))
    before = _mean_loss(state.model.eval())
    losses = [report.train_loss for report in epochs(state, batches, replace(CONFIG, epochs=60))]
    assert losses[-1] < 0.5 * losses[0]
    assert _mean_loss(state.model.eval()) < 0.3 * before


def test_the_reported_loss_is_the_mean_over_all_samples_of_the_epoch() -> None:
    config = replace(CONFIG, epochs=1, learning_rate=1e-12)
    state, batches = begin(config)
    state.model.eval()
    expected = _mean_loss(state.model)
    for module in state.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    (report,) = epochs(state, batches, config)
    assert report.train_loss == pytest.approx(expected, rel=1e-5)


def _mean_loss(model: nn.Module) -> float:
    from lsm_core.evaluation.evaluate import relative_l2

    fields = problem()
    with torch.no_grad():
        return relative_l2(model(fields.inputs), fields.targets).mean().item()


@pytest.mark.parametrize("schedule", ["step", "one_cycle", "constant"])
@pytest.mark.parametrize("cut", [1, 2, 4, 11, 22])
def test_a_run_restored_from_bytes_ends_with_the_same_weights(schedule: str, cut: int) -> None:
    config = replace(CONFIG, schedule=schedule)
    straight, batches = begin(config)
    torch.manual_seed(7)
    reports = list(fit(straight, batches, config))

    killed, batches = begin(config)
    torch.manual_seed(7)
    loop = fit(killed, batches, config)
    first = [next(loop) for _ in range(cut)]
    saved = killed.to_bytes({"history": [1, 2]})

    torch.manual_seed(99)
    resumed, batches = begin(config)
    assert resumed.restore(saved) == {"history": [1, 2]}
    second = list(fit(resumed, batches, config))
    assert first + second == reports
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


RECIPE = replace(
    CONFIG,
    optimizer="adamw",
    decayed="matrices",
    gradient_clip=0.05,
    averaging=0.9,
    derivative_weight=0.1,
    teacher_forcing=True,
    frame_noise=0.1,
)


def rollouts() -> tuple[Surrogate, Fields]:
    """Return an untrained model of four time steps with dropout, and samples for it."""
    torch.manual_seed(1)
    frames = torch.randn(10, 8, 6).cumsum(-1)
    fields = Fields(frames[..., :2], frames[..., 2:])
    step = nn.Sequential(nn.Linear(2, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))
    scales = (fit_normalization("channel", part) for part in (fields.inputs, fields.targets))
    return Surrogate(Rollout(step, 4), *scales), fields


def begin_rollouts(config: TrainingConfig) -> tuple[TrainingState, BatchesInMemory]:
    model, fields = rollouts()
    batches = BatchesInMemory(fields, config.batch_of(10), permutations(10, seed=0))
    return start_training(model, config, len(batches)), batches


@pytest.mark.parametrize("cut", [2, 11])
def test_a_run_of_every_setting_restored_from_bytes_ends_with_the_same_weights(cut: int) -> None:
    straight, batches = begin_rollouts(RECIPE)
    torch.manual_seed(7)
    reports = list(fit(straight, batches, RECIPE, (True,)))

    killed, batches = begin_rollouts(RECIPE)
    torch.manual_seed(7)
    loop = fit(killed, batches, RECIPE, (True,))
    first = [next(loop) for _ in range(cut)]
    saved = killed.to_bytes({})

    torch.manual_seed(99)
    resumed, batches = begin_rollouts(RECIPE)
    resumed.restore(saved)
    assert first + list(fit(resumed, batches, RECIPE, (True,))) == reports
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert straight.average.keys() == resumed.average.keys()
    for name, mean in straight.average.items():
        assert torch.equal(mean, resumed.average[name]), name


@pytest.mark.parametrize(
    "change",
    [
        {"gradient_clip": 1e9},
        {"derivative_weight": 0.5},  # on points in no order
        {"averaging": 0.9},
        {"teacher_forcing": True},  # of a model that takes no steps
        {"updates": 18},  # three batches in each of six epochs, as without
    ],
)
def test_settings_that_have_nothing_to_do_change_no_bit(change: dict[str, float]) -> None:
    weights = []
    for config in (CONFIG, replace(CONFIG, **change)):
        state, _ = begin(config)
        batches = BatchesInMemory(problem(), config.batch_of(10), permutations(10, seed=0))
        torch.manual_seed(7)
        list(fit(state, batches, config))
        weights.append(state.model.state_dict())
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name]), name


def test_adamw_takes_the_decay_off_the_weights_that_decay() -> None:
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.fill_(2.0)
    config = TrainingConfig(
        optimizer="adamw", decayed="matrices", weight_decay=0.5, learning_rate=0.1
    )
    state = start_training(model, config, 1)
    model.weight.grad, model.bias.grad = torch.zeros(1, 1), torch.zeros(1)
    state.optimizer.step()
    assert model.weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5))
    assert model.bias.item() == 2.0


def test_a_clipped_gradient_has_the_norm_of_the_limit_for_the_mean_loss() -> None:
    state, batches = begin(replace(CONFIG, batch_size=10))
    state.model.eval()  # without dropout
    (batch,) = batches.epoch(0)
    _, norm = train_step(state, batch, replace(CONFIG, gradient_clip=1e-3)).read()
    left = torch.stack([p.grad.norm() for p in state.model.parameters() if p.grad is not None])
    assert norm > 1e-2
    assert left.norm().item() == pytest.approx(10 * 1e-3, rel=1e-3)


def test_derivatives_are_trained_on_and_not_reported() -> None:
    plain, batches = begin(replace(CONFIG, batch_size=10))
    sloped, _ = begin()
    for state in (plain, sloped):
        state.model.eval()
    (batch,) = batches.epoch(0)
    loss, norm = train_step(plain, batch, CONFIG).read()
    same_loss, other_norm = train_step(
        sloped, batch, replace(CONFIG, derivative_weight=1.0), (False,)
    ).read()
    assert same_loss == loss
    assert other_norm > 1.1 * norm


def test_the_mean_of_the_weights_follows_them_and_is_given_for_a_while() -> None:
    config = replace(CONFIG, averaging=0.5)
    state, batches = begin(config)
    first = state.model.model[0].weight
    expected = first.detach().clone()
    for n_steps, report in enumerate(
        (r for r in fit(state, batches, config) if isinstance(r, BatchReport)), start=1
    ):
        kept = min(0.5, (1 + n_steps) / (10 + n_steps))
        expected = kept * expected + (1 - kept) * first.detach()
        assert report.batch >= 1
    own = first.detach().clone()
    with state.averaged():
        torch.testing.assert_close(first.detach(), expected)
        assert not torch.equal(first, own)
    assert torch.equal(first, own)
    loaded = model_weights(state.to_bytes({}))
    torch.testing.assert_close(loaded["model.0.weight"], expected)


def test_with_teacher_forcing_each_step_reads_true_frames() -> None:
    model, fields = rollouts()
    model.eval()
    forced = model.forced(fields.inputs, fields.targets)
    first, rest = model(fields.inputs), model(fields.inputs)
    torch.testing.assert_close(forced[..., :1], first[..., :1])
    assert not torch.allclose(forced[..., 1:], rest[..., 1:])
    # The last step sees the frames before it, in the units of the targets.
    frames = model.outputs.encode(fields.targets)
    last = model.model.model(frames[..., 1:3])
    decoded = model.outputs.decode(torch.cat([last] * 4, dim=-1))[..., 3]
    torch.testing.assert_close(forced[..., 3], decoded)


def test_noise_on_true_frames_is_a_part_of_their_size() -> None:
    torch.manual_seed(0)
    frames = 10 * torch.randn(4, 500, 6)
    read: list[torch.Tensor] = []

    class Reader(nn.Module):
        def forward(self, window: torch.Tensor) -> torch.Tensor:
            read.append(window)
            return window[..., -1:]

    rollout = Rollout(Reader(), 4)
    rollout.forced(frames[..., :2], frames[..., 2:], 0.0)
    rollout.forced(frames[..., :2], frames[..., 2:], 0.05)
    assert (read[1] - read[0]).std().item() == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize(
    ("updates", "epochs", "n_samples", "batch_size"),
    [(0, 6, 10, 4), (18, 6, 10, 4), (6, 6, 10, 10), (60, 6, 10, 1), (7, 3, 10, 4), (1, 6, 10, 10)],
)
def test_the_batch_size_follows_from_the_number_of_updates(
    updates: int, epochs: int, n_samples: int, batch_size: int
) -> None:
    config = replace(CONFIG, updates=updates, epochs=epochs)
    assert config.batch_of(n_samples) == batch_size
    assert epochs * -(-n_samples // batch_size) >= updates


def test_more_updates_than_samples_to_take_them_on_are_refused() -> None:
    with pytest.raises(ValueError, match="61 updates in 6 epochs of 10 samples"):
        replace(CONFIG, updates=61).batch_of(10)


def test_the_step_schedule_halves_the_rate_every_hundred_epochs() -> None:
    config = TrainingConfig(epochs=201, batch_size=10, schedule="step", learning_rate=1e-3)
    state, batches = begin(config)
    rates = [report.learning_rate for report in epochs(state, batches, config)]
    assert [rates[i] for i in (0, 99, 100, 199, 200)] == pytest.approx(
        [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4]
    )


def test_weight_decay_is_added_to_the_gradient() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    state = start_training(
        model, TrainingConfig(weight_decay=0.5, learning_rate=0.1, schedule="constant"), 1
    )
    model.weight.grad = torch.zeros_like(model.weight)
    state.optimizer.step()
    # Adam's first step has the size of the rate whatever the gradient; AdamW's would be 0.1 too
    # small by the decay of the weight itself.
    assert model.weight.item() == pytest.approx(1.9, abs=1e-6)


def test_a_loss_that_is_no_number_stops_before_it_harms_the_weights() -> None:
    state, batches = begin()
    batches.fields.targets[3] = float("nan")
    with pytest.raises(Diverged, match=r"nan in batch \d of epoch 0"):
        list(fit(state, batches, CONFIG))
    assert all(value.isfinite().all() for value in state.model.state_dict().values())


def test_a_gradient_that_is_no_number_stops_before_it_harms_the_weights() -> None:
    state, batches = begin()
    batches.fields.inputs[5, 0, 0] = 3e38  # the loss is finite where the gradient is not
    with pytest.raises(Diverged, match=r"in batch \d of epoch 0"):
        list(fit(state, batches, CONFIG))
    assert all(value.isfinite().all() for value in state.model.state_dict().values())


def look_seldom(patch: pytest.MonkeyPatch) -> None:
    """Let the loop look at losses as it does on a device that the host would wait for."""
    patch.setattr("lsm_core.training.loop._host_would_wait", lambda model: True)


@pytest.mark.parametrize("schedule", ["step", "one_cycle", "constant"])
@pytest.mark.parametrize("spoilt", [(3, "nan"), (5, "inf"), (7, "hope")])
def test_a_late_look_finds_the_batch_that_went_wrong_and_the_state_before_it(
    schedule: str, spoilt: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, schedule=schedule)
    states = []
    for at_once in (True, False):
        with monkeypatch.context() as patch:
            if not at_once:
                look_seldom(patch)
            state, batches = begin(config)
            sample, kind = spoilt
            if kind == "hope":
                batches.fields.targets[sample] *= 1e-9
            else:
                batches.fields.inputs[sample, 0, 0] = {"nan": float("nan"), "inf": 3e38}[kind]
            torch.manual_seed(3)
            with pytest.raises(Diverged) as found:
                list(fit(state, batches, config))
            saved = state.to_bytes({})
            states.append((str(found.value), state, _without_random_state(saved)))
    (first_words, first, first_bytes), (second_words, second, second_bytes) = states
    assert first_words == second_words
    assert (first.epoch, first.batch) == (second.epoch, second.batch)
    assert first_bytes == second_bytes


def _without_random_state(saved: bytes) -> tuple[object, ...]:
    from lsm_core.training.state import _read

    tensors, plain = _read(saved)
    plain.pop("random")  # dropout drew numbers for the steps after it
    return plain, {name: value.tolist() for name, value in tensors.items()}


def test_late_looks_change_no_number_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for at_once in (True, False):
        with monkeypatch.context() as patch:
            if not at_once:
                look_seldom(patch)
            state, batches = begin()
            torch.manual_seed(7)
            runs.append((list(fit(state, batches, CONFIG)), state.to_bytes({})))
    assert runs[0] == runs[1]


def test_a_checkpoint_between_two_looks_holds_all_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    look_seldom(monkeypatch)
    torch.manual_seed(7)
    straight, batches = begin()
    reports = list(fit(straight, batches, CONFIG))
    torch.manual_seed(7)
    killed, batches = begin()
    loop = fit(killed, batches, CONFIG)
    first = [next(loop) for _ in range(6)]
    saved = killed.to_bytes({})
    resumed, batches = begin()
    resumed.restore(saved)
    assert first + list(fit(resumed, batches, CONFIG)) == reports


def test_an_error_beyond_hope_stops_the_run() -> None:
    state, batches = begin()
    batches.fields.targets[:] *= 1e-9
    with pytest.raises(Diverged, match="the relative error rose to"):
        list(fit(state, batches, CONFIG))


def test_every_batch_and_every_epoch_is_reported() -> None:
    config = replace(CONFIG, epochs=2)
    state, batches = begin(config)
    reports = list(fit(state, batches, config))
    assert [type(report) for report in reports] == [*[BatchReport] * 3, EpochReport] * 2
    assert [report.batch for report in reports[:3]] == [1, 2, 3]


def test_a_batch_in_parts_gives_the_same_gradient() -> None:
    whole, batches = begin(replace(CONFIG, batch_size=10))
    parts, _ = begin()
    for state in (whole, parts):
        state.model.eval()  # without dropout
    (batch,) = batches.epoch(0)
    first = train_step(whole, batch, CONFIG)
    second = train_step(parts, batch, replace(CONFIG, accumulation=3))
    assert second.read() == pytest.approx(first.read(), rel=1e-5)
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(value, parts.model.state_dict()[name])


def test_batches_cover_all_samples_once_in_an_order_of_seed_and_epoch() -> None:
    fields = Fields(torch.arange(10.0).reshape(10, 1, 1), torch.zeros(10, 1, 1))

    def order(seed: int, epoch: int) -> list[float]:
        batches = list(BatchesInMemory(fields, 4, permutations(10, seed)).epoch(epoch))
        assert [len(batch) for batch in batches] == [4, 4, 2]
        return torch.cat([batch.inputs for batch in batches]).flatten().tolist()

    assert sorted(order(0, 0)) == list(range(10))
    assert order(0, 1) == order(0, 1) != order(0, 0)
    assert order(1, 0) != order(0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("weight_decay", -1.0),
        ("updates", -1),
        ("gradient_clip", -0.1),
        ("averaging", 1.0),
        ("derivative_weight", -0.1),
        ("frame_noise", 0.1),  # without teacher forcing
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        TrainingConfig(**{name: value})
