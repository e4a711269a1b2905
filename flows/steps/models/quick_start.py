"""Models without torch's compiler, for commands that answer at once and compile nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let models be imported while the block runs without the compiler, half of torch's start.

    A layer that hides something from the compiler asks torch to, and torch imports all of it to
    remember that. What is imported so must not be compiled in the same process.
    """
    import torch

    def visible(made: Callable[..., Any] | None = None, **_: Any) -> Any:
        return made if made is not None else lambda each: each

    asked = torch.compiler.disable
    torch.compiler.disable = visible  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.compiler.disable = asked
