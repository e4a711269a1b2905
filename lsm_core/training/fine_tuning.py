"""Begin with the weights of another run: keep what fits, say what is new, hold parts fixed."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

ADAPTED = ("lift", "head")
"""Parts that depend on how many fields go in and come out, and may begin anew."""
EVERYTHING = "everything"
"""As a part to freeze: nothing is trained, the model is only asked on other data."""
OF_THE_DATA = ("inputs.", "outputs.")
"""Normalisation belongs to the data that is trained on, not to the weights."""


def adopt(model: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Load the weights of another run into a surrogate and return the names of what is new.

    Lift and head begin anew where their sizes differ; everything else must fit exactly.
    """
    own = model.state_dict()
    expected = {name for name in own if not name.startswith(OF_THE_DATA)}
    given = {name for name in weights if not name.startswith(OF_THE_DATA)}
    if unknown := sorted(given - expected):
        raise ValueError(
            f"the source has {unknown[0]} and {len(unknown) - 1} more weights that this model "
            "has not; take a source of the same model with the same settings"
        )
    fresh = {
        name for name in expected if name not in given or weights[name].shape != own[name].shape
    }
    for name in sorted(fresh):
        if not any(_belongs(name, part) for part in ADAPTED):
            found = tuple(weights[name].shape) if name in given else "nothing"
            raise ValueError(
                f"the source has {found} for {name}, this model {tuple(own[name].shape)}; only "
                f"{' and '.join(ADAPTED)} may differ"
            )
    # A layer begins anew as a whole: a bias that fits by chance goes with its weight.
    layers = {name.rpartition(".")[0] for name in fresh}
    fresh = {name for name in expected if name.rpartition(".")[0] in layers}
    model.load_state_dict({**own, **{name: weights[name] for name in expected - fresh}})
    return sorted(fresh)


def take_over(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load all weights of another run, its normalisation among them, to ask it on other data."""
    own = model.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        here, there = (tuple(some[name].shape) if name in some else None for some in (weights, own))
        if here != there:
            raise ValueError(
                f"the source has {here} for {name}, where {there} is needed: it is tied to its "
                "grid, or scales its fields point by point; train it with one statistic a channel"
            )
    model.load_state_dict(dict(weights))


def freeze(model: nn.Module, parts: Sequence[str]) -> int:
    """Hold the parameters of some parts of the operator fixed and return how many numbers stay.

    A part is the beginning of parameter names (`lift`, `network.down`). Running statistics of
    batch normalisation follow the new data all the same.
    """
    n_fixed = 0
    for part in parts:
        fixed = [p for name, p in model.named_parameters() if _belongs(name, part)]
        if not fixed:
            known = sorted(
                {_operator_name(n).partition(".")[0] for n, _ in model.named_parameters()}
            )
            raise ValueError(f"no parameter belongs to {part!r}; parts are {', '.join(known)}")
        for parameter in fixed:
            parameter.requires_grad_(False)
            n_fixed += parameter.numel()
    if parts and not any(p.requires_grad for p in model.parameters()):
        raise ValueError(f"freezing {', '.join(parts)} leaves nothing to train")
    return n_fixed


def _operator_name(name: str) -> str:
    """Return a name without the surrogate and the rollout around the operator."""
    while name.startswith("model."):
        name = name.removeprefix("model.")
    return name


def _belongs(name: str, part: str) -> bool:
    return f"{_operator_name(name)}.".startswith(f"{part}.")
