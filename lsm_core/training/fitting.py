"""Models that are computed from the samples instead of trained on them."""

from collections.abc import Iterable

from lsm_core.models.fitted import FittedModel
from lsm_core.surrogates.surrogate import Surrogate
from lsm_core.training.batches import Fields


def fit_directly(surrogate: Surrogate, parts: Iterable[Fields]) -> bool:
    """Fit a classical model to the training samples, as it sees them; return whether it is one."""
    if not isinstance(surrogate.model, FittedModel):
        return False
    surrogate.model.fit(
        (surrogate.inputs.encode(part.inputs), surrogate.outputs.encode(part.targets))
        for part in parts
    )
    return True
