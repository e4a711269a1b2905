import pytest
import torch
from torch import nn

from lsm_core.models.catalogue import build_model
from lsm_core.models.lsm import release_form
from lsm_core.problems.shape import ProblemShape
from lsm_core.surrogates.normalization import fit_normalization
from lsm_core.surrogates.rollout import Rollout
from lsm_core.surrogates.surrogate import Surrogate
from lsm_core.training.batches import Fields
from lsm_core.training.config import TrainingConfig
from lsm_core.training.fine_tuning import adopt, freeze
from lsm_core.training.loop import train_step
from lsm_core.training.state import start_training


def surrogate(seed: int, n_inputs: int = 1, n_outputs: int = 1, size: int = 16) -> Surrogate:
    torch.manual_seed(seed)
    shape = ProblemShape(space=(size, size), n_inputs=n_inputs, n_outputs=n_outputs)
    return Surrogate(
        build_model(release_form(width=8, n_scales=3), shape),
        fit_normalization("channel", torch.randn(5, size, size, n_inputs)),
        fit_normalization("channel", torch.randn(5, size, size, n_outputs)),
    )


def test_a_model_of_the_same_sizes_is_taken_over_whole_but_for_the_normalisation() -> None:
    source, target = surrogate(0), surrogate(1)
    own_mean = target.inputs.mean.clone()
    assert adopt(target, source.state_dict()) == []
    for name, value in source.model.state_dict().items():
        assert torch.equal(value, target.model.state_dict()[name]), name
    assert torch.equal(target.inputs.mean, own_mean)


def test_other_channels_give_a_new_lift_and_head_and_another_grid_nothing_new() -> None:
    source = surrogate(0)
    fresh = surrogate(1, n_inputs=3, n_outputs=2, size=24)
    untouched = fresh.model.lift.weight.clone()
    new = adopt(fresh, source.state_dict())
    assert new == [
        "model.head.output.bias",
        "model.head.output.weight",
        "model.lift.bias",
        "model.lift.weight",
    ]
    assert torch.equal(fresh.model.lift.weight, untouched)
    hidden = fresh.model.head.hidden.weight
    assert torch.equal(hidden, source.model.head.hidden.weight)
    assert adopt(surrogate(1, size=24), source.state_dict()) == []


def test_another_model_is_refused_by_the_name_of_what_does_not_fit() -> None:
    target = surrogate(0)
    weights = target.state_dict()
    with pytest.raises(ValueError, match="only lift and head may differ"):
        adopt(target, {**weights, "model.network.last.weight": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="more weights that this model has not"):
        adopt(target, {**weights, "model.other.weight": torch.zeros(1)})
    missing = {k: v for k, v in weights.items() if not k.startswith("model.network.down")}
    with pytest.raises(ValueError, match=r"nothing for model\.network\.down"):
        adopt(target, missing)


def test_frozen_parts_stay_and_the_others_move() -> None:
    model = surrogate(0)
    assert freeze(model, ["lift", "network.down"]) == sum(
        p.numel()
        for name, p in model.model.named_parameters()
        if name.startswith(("lift.", "network.down."))
    )
    before = {name: value.clone() for name, value in model.named_parameters()}
    state = start_training(model, TrainingConfig(learning_rate=0.01, schedule="constant"), 1)
    train_step(state, Fields(torch.randn(4, 16, 16, 1), torch.randn(4, 16, 16, 1)))
    for name, value in model.named_parameters():
        is_fixed = name.removeprefix("model.").startswith(("lift.", "network.down."))
        assert torch.equal(value, before[name]) == is_fixed, name


def test_parts_inside_a_rollout_have_the_same_names() -> None:
    model = nn.Module()
    model.model = Rollout(surrogate(0).model, n_steps=2)
    assert freeze(model, ["lift"]) > 0


def test_a_part_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="parts are head, lift, network"):
        freeze(surrogate(0), ["encoder"])
    with pytest.raises(ValueError, match="leaves nothing to train"):
        freeze(surrogate(0), ["head", "lift", "network"])
