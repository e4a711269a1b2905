"""Trained weights on another grid, for the models that promise it."""

from collections.abc import Mapping

from torch import Tensor, nn

from lsm_core.models.catalogue import ModelConfig, build_model, model_name
from lsm_core.problems.shape import ProblemShape


def at_shape(config: ModelConfig, state: Mapping[str, Tensor], shape: ProblemShape) -> nn.Module:
    """Return the model of another grid with the weights of a state dict.

    A model that is tied to its grid has a weight whose size, or whose presence, follows from the
    grid; the error names it.
    """
    model = build_model(config, shape)
    wanted = model.state_dict()
    for name in sorted(wanted.keys() | state.keys()):
        here, there = (_size(tensors.get(name)) for tensors in (state, wanted))
        if here != there:
            raise ValueError(
                f"{model_name(config)} is tied to its grid and cannot move to {shape.space}: "
                f"its weight {name} is {here}, where {there} is needed"
            )
    model.load_state_dict(dict(state))
    return model


def _size(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else "x".join(map(str, tensor.shape)) or "one number"
