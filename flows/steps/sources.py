"""The fingerprint of the code behind a result."""

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("lsm_core", "storage", "flows")


def source_digest(*modules: str, leaving_out: tuple[str, ...] = ()) -> str:
    """Return the hash of modules and of every module of the project they import, near or far.

    A result that was made with other sources is then never taken for a current one, while a change
    elsewhere (another model, a page of the report) leaves it valid. What is left out is not
    followed: a catalogue imports all models, of which a run needs one.
    """
    digest = hashlib.sha256()
    for module in sorted(reachable(modules, leaving_out)):
        digest.update(module.encode())
        digest.update(module_path(module).read_bytes())
    return digest.hexdigest()[:16]


def reachable(modules: tuple[str, ...], leaving_out: tuple[str, ...] = ()) -> set[str]:
    """Return some modules and every module of the project that they import, near or far."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found and module not in leaving_out:
            found.add(module)
            waiting.extend(_imports(module))
    return found


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Return the project's modules that a module imports, inside functions too."""
    tree = ast.parse(module_path(module).read_text(encoding="utf-8"))
    return tuple(name for node in ast.walk(tree) for name in _named(node) if _is_module(name))


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_module(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES and _find(name) is not None


def module_path(module: str) -> Path:
    """Return the file of a module of the project."""
    path = _find(module)
    if path is not None:
        return path
    # A problem or model of a user's own, from a file that no import path leads to.
    loaded = sys.modules.get(module)
    if loaded is None or loaded.__file__ is None:
        raise ValueError(f"there is no module {module}")
    return Path(loaded.__file__)


def _find(module: str) -> Path | None:
    """Return the file of a module without importing it, which could take seconds."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return None
    base = Path(spec.origin).parent.joinpath(*rest)
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)
