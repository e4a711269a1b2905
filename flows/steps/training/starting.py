"""Where a training begins if not from random weights: a registered model on another problem."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from flows.errors import BadInput
from flows.settings import Settings
from flows.steps.data.given import given_names, problem_named
from flows.steps.models.shipped import unpack_shipped
from flows.steps.results import stored_result
from lsm_core.experiments.experiment import Experiment
from lsm_core.experiments.protocols import Protocol
from lsm_core.models.catalogue import ModelConfig
from lsm_core.models.point_cloud import PointCloudConfig
from lsm_core.names import ModelName
from lsm_core.surrogates.operator import build_operator
from lsm_core.training.adoption import brought_over, suits
from lsm_core.training.fine_tuning import EVERYTHING
from storage.errors import NoSuchModel


def named_source(
    text: str | None, model: ModelName, settings: Settings
) -> tuple[Protocol | str | None, ModelConfig | None]:
    """Return what a source is: a problem, or a run with the settings that its model has.

    `airfoil@champion` and `pde-airfoil/3` are registered models; anything else stays what it is.
    """
    text = unpack_shipped(text, settings.root)
    if text is None or not ("@" in text or text.startswith("pde-")):
        is_own = text is not None and text in given_names(settings.root)
        return (problem_named(str(text), settings.root) if is_own else text), None
    from storage.tracking.registry import ModelRegistry  # with MLflow, which takes seconds

    reference = text if text.startswith("pde-") else f"pde-{text}"
    try:
        version = ModelRegistry(settings.tracking_uri, settings.root).find(reference)
    except NoSuchModel as error:
        raise BadInput(str(error)) from error
    identity = version.tags["identity"]
    result = stored_result(settings.root, identity)
    if result is None:
        raise BadInput(f"{text} is run {identity}, which is not in {settings.root}; train it there")
    if result.model != model:
        raise BadInput(
            f"{text} is a {result.model}, from whose weights no {model} can start; say "
            f"`lsm train {result.model} ... --from {text}`"
        )
    return identity, Experiment.from_plain(result.settings).model


def settings_like(own: Any, source: Any) -> Any:
    """Return the settings of a problem's model with the sizes that the source has.

    What goes by axis, such as modes or patches, stays that of the problem.
    """
    if isinstance(own, PointCloudConfig):
        body = source.body if isinstance(source, PointCloudConfig) else source
        return replace(own, body=settings_like(own.body, body))
    source = source.body if isinstance(source, PointCloudConfig) else source
    sizes = {
        f.name: getattr(source, f.name)
        for f in fields(own)
        if isinstance(getattr(own, f.name), int) and isinstance(getattr(source, f.name), int)
    }
    known = {n: v for n, v in sizes.items() if not isinstance(v, bool) and "modes" not in n}
    widths = {
        f.name: getattr(source, f.name)
        for f in fields(own)
        if f.name.endswith("widths") and isinstance(getattr(source, f.name), tuple)
    }
    return replace(own, **known, **widths)


def starting_weights(experiment: Experiment, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the weights of a source as a run can adopt them; BadInput if there is no way."""
    if EVERYTHING in experiment.frozen:
        return weights
    torch.manual_seed(experiment.seed)
    fresh = build_operator(experiment.model, experiment.benchmark).state_dict()
    own = {f"model.{name}": value for name, value in fresh.items()}
    if suits(weights, own):
        return weights
    try:
        return brought_over(weights, own)
    except ValueError as error:
        raise BadInput(str(error)) from error
