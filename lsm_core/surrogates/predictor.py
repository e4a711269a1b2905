"""A trained model on named fields: what its users and a server call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from lsm_core.configuration import from_plain
from lsm_core.models.catalogue import MODELS, ModelConfig, build_model, model_name
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import ModelName
from lsm_core.problems.fields import stack_channels
from lsm_core.problems.pooling import unstack_targets
from lsm_core.problems.sample import Sample
from lsm_core.problems.shape import ProblemShape
from lsm_core.problems.variable import Variable
from lsm_core.surrogates.normalization import Normalization
from lsm_core.surrogates.operator import shape_of_one_step
from lsm_core.surrogates.rollout import Rollout
from lsm_core.surrogates.surrogate import POINTS_AT_ONCE, Surrogate, predict
from lsm_core.surrogates.trust import Opinion, Trust

GRIDS_KEPT = 4


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """What has to be known beside the weights: the model's settings and the variables it maps.

    The shapes of the variables are those of the training samples. `n_steps` is how often the model
    is applied to its own output.
    """

    benchmark: str
    model_name: ModelName
    model: ModelConfig
    space: tuple[str, ...]
    n_steps: int
    inputs: tuple[Variable, ...]
    targets: tuple[Variable, ...]

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "TrainedModel":
        """Return what `asdict` wrote down; a ValueError if another version did."""
        model = model_from_plain(values.get("model_name"), values.get("model", {}))
        return from_plain(cls, {**values, "model": model})

    @property
    def grid(self) -> dict[str, int]:
        """Return the number of points along each axis of space in training."""
        for variable in (*self.targets, *self.inputs):
            sizes = _sizes(variable)
            if all(axis in sizes for axis in self.space):
                return {axis: sizes[axis] for axis in self.space}
        raise ValueError(f"no variable of {self.benchmark} has all axes {', '.join(self.space)}")

    def at(self, grid: Mapping[str, int]) -> "TrainedModel":
        """Return the same with the variables on another grid."""
        inputs, targets = (
            tuple(
                replace(v, shape=tuple(grid.get(dim, size) for dim, size in _sizes(v).items()))
                for v in variables
            )
            for variables in (self.inputs, self.targets)
        )
        return replace(self, inputs=inputs, targets=targets)

    @property
    def shape(self) -> ProblemShape:
        """Return the size of the map that one application of the model is."""
        n_inputs, n_outputs = (
            sum(prod(n for dim, n in _sizes(v).items() if dim not in self.space) for v in variables)
            for variables in (self.inputs, self.targets)
        )
        space = tuple(self.grid.values())
        shape = ProblemShape(space=space, n_inputs=n_inputs, n_outputs=n_outputs)
        return shape_of_one_step(shape, self.n_steps)


def _sizes(variable: Variable) -> dict[str, int]:
    return dict(zip(variable.dims, variable.shape, strict=True))


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


def at_grid(config: ModelConfig, trained: tuple[int, ...], space: tuple[int, ...]) -> ModelConfig:
    """Return the settings of a model on another grid: padding is the same part of every axis.

    In points it would be another part, and the waves of its Fourier layers would have lengths that
    were never trained. On its own grid nothing changes.
    """
    padding = getattr(config, "padding", 0)
    if not padding:
        return config
    wanted = [padding * new / old for old, new in zip(trained, space, strict=True)]
    if max(wanted) - min(wanted) > 1:
        raise ValueError(
            f"{model_name(config)} is padded by {padding} points on a grid of {_times(trained)}, "
            f"which is no one number on {_times(space)}; ask it on a grid that is finer by the "
            "same factor along all axes"
        )
    return replace(config, padding=round(sum(wanted) / len(wanted)))


def _size(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else "x".join(map(str, tensor.shape)) or "one number"


def model_from_plain(name: Any, values: Mapping[str, Any]) -> ModelConfig:
    """Return the settings of a model by name; on scattered points they are those of the body."""
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; known are {', '.join(MODELS)}")
    config_class = MODELS[name].config
    if "body" not in values:
        return from_plain(config_class, values)
    body = from_plain(config_class, values["body"])
    return from_plain(PointCloudConfig, {**values, "body": body})


class Predictor:
    """A trained model in physical units, on its own grid or any other that it supports."""

    def __init__(self, model: TrainedModel, weights: Mapping[str, Tensor]) -> None:
        """Take the state dict of a surrogate; a ValueError if it is of another model."""
        self.model = model
        self.weights = dict(weights)
        self._surrogate = lru_cache(GRIDS_KEPT)(self._built)
        self.surrogate()

    def __call__(self, arrays: Sample) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Return the target variables `(samples, *shape)`, given the input variables.

        Samples are the first axis of every array. The grid is that of the arrays; along an axis
        that no input has it is that of training.
        """
        return self.with_opinion(arrays, None)[0]

    def with_opinion(
        self, arrays: Sample, trust: Trust | None
    ) -> tuple[dict[str, np.ndarray[Any, np.dtype[Any]]], Opinion | None]:
        """Return the target variables, and what is to be thought of each sample of them.

        Nothing is thought without a calibration, or on another grid than that of the calibration.
        """
        grid = self._checked_grid(arrays)
        model = self.model.at(grid)
        values = {v.name: np.asarray(arrays[v.name], dtype=np.float32) for v in model.inputs}
        inputs = torch.tensor(stack_channels(values, model.inputs, grid))
        batch_size = max(1, POINTS_AT_ONCE // prod(grid.values()))
        surrogate = self.surrogate(grid)
        predicted = predict(surrogate, inputs, batch_size)
        known = trust is not None and grid == self.model.grid
        opinion = trust.opinion(surrogate, inputs, predicted) if trust and known else None
        return unstack_targets(predicted.numpy(), model.targets, grid), opinion

    def surrogate(self, grid: Mapping[str, int] | None = None) -> Surrogate:
        """Return the model with its normalisations; a ValueError if it cannot move to the grid."""
        return self._surrogate(tuple((self.model.grid if grid is None else grid).values()))

    def supports(self, grid: Mapping[str, int]) -> bool:
        """Return whether the model can predict on a grid."""
        try:
            self.surrogate(grid)
        except ValueError:
            return False
        return True

    def _built(self, space: tuple[int, ...]) -> Surrogate:
        grid = dict(zip(self.model.space, space, strict=True))
        inputs, outputs = (self._normalization(part, space) for part in ("inputs", "outputs"))
        is_rollout = self.model.n_steps > 1
        prefix = "model.model." if is_rollout else "model."
        own = {n.removeprefix(prefix): v for n, v in self.weights.items() if n.startswith(prefix)}
        config = at_grid(self.model.model, tuple(self.model.grid.values()), space)
        operator = at_shape(config, own, self.model.at(grid).shape)
        if is_rollout:
            operator = Rollout(operator, self.model.n_steps)
        return Surrogate(operator, inputs, outputs).eval()

    def _normalization(self, part: str, space: tuple[int, ...]) -> Normalization:
        try:
            mean, std = self.weights[f"{part}.mean"], self.weights[f"{part}.std"]
        except KeyError as error:
            raise ValueError(f"the weights have no {error.args[0]}, as trained models do") from None
        # One statistic a channel, or one in all, fits every grid.
        if mean.ndim > 1 and tuple(mean.shape[:-1]) != space:
            raise ValueError(
                f"this {self.model.model_name} normalises its {part} point by point on "
                f"{_times(mean.shape[:-1])} points and cannot predict on {_times(space)}; train "
                "it with one statistic a channel, or bring the fields to that grid"
            )
        normalization = Normalization(mean, std)
        normalization.load_state_dict({"mean": mean, "std": std})
        return normalization

    def _checked_grid(self, arrays: Sample) -> dict[str, int]:
        """Return the grid of some input arrays; a ValueError says what is wrong with them."""
        grid: dict[str, int] = {}
        n_samples = 0
        for variable in self.model.inputs:
            values = self._values(arrays, variable)
            n_samples = n_samples or len(values)
            # Any size will do along an axis of space that no variable before this one has.
            wanted = {
                dim: grid.get(dim, None if dim in self.model.space else size)
                for dim, size in _sizes(variable).items()
            }
            found = dict(zip(wanted, values.shape[1:], strict=True))
            fits = all(size in (None, found[dim]) for dim, size in wanted.items())
            if not fits or len(values) != n_samples or 0 in values.shape:
                sizes = ("any" if size is None else size for size in wanted.values())
                raise ValueError(
                    f"{variable.name} has shape {_times(values.shape)}, expected {n_samples or 1} "
                    f"samples of {_times(sizes)} ({' x '.join(variable.dims)})"
                )
            grid |= {dim: size for dim, size in found.items() if dim in self.model.space}
        return {axis: grid.get(axis, size) for axis, size in self.model.grid.items()}

    def _values(self, arrays: Sample, variable: Variable) -> Shaped[np.ndarray, "samples *shape"]:
        if variable.name not in arrays:
            wanted = ", ".join(v.name for v in self.model.inputs)
            raise ValueError(
                f"there is no variable {variable.name}, found {', '.join(arrays) or 'none'}; "
                f"this model of {self.model.benchmark} needs {wanted}"
            )
        values = np.asarray(arrays[variable.name])
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{variable.name} is of type {values.dtype}, expected real numbers")
        if values.ndim != 1 + len(variable.dims):
            raise ValueError(
                f"{variable.name} has {values.ndim} axes, expected {1 + len(variable.dims)}: "
                f"sample x {' x '.join(variable.dims)}"
            )
        n_wrong = int((~np.isfinite(values)).sum())
        if n_wrong:
            raise ValueError(
                f"{variable.name} has {n_wrong} values of NaN or infinity, expected numbers"
            )
        return values


def _times(sizes: Any) -> str:
    return " x ".join(str(size) for size in sizes)
