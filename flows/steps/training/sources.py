"""Fingerprints of code: by the bytes of its files behind data, by its syntax behind a run."""

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("lsm_core", "storage", "flows")

TRAINING = ("lsm_core.experiments.trial", "lsm_core.problems.fields")
"""What makes the numbers of a run, beside its model; their imports inside the core count, too."""
READING = ("flows.steps.training.fields", "storage.datasets.batches")
"""Outside the core: how samples are stacked and split, and in which order they come."""
TABLES = ("lsm_core.models.catalogue", "lsm_core.models.entry")
"""What knows all models, of which a run needs one: how it is built counts, not who is listed."""
CARRIERS = ("lsm_core.result", "lsm_core.names")
"""What numbers are kept in and what things are called: neither makes a number."""
SETTINGS = "preset"
"""The function of a model's file that only says which settings it has; they are hashed as such."""
ENTRY, BUILT = "MODEL", ("network", "latent")
"""The entry of a model's file, and what of it says how the model is built; the rest is settings."""


def source_digest(*modules: str) -> str:
    """Return the hash of modules and of every module of the project they import, near or far.

    Data that was made with other sources is then never taken for current. Names and bytes count,
    comments too: datasets are named by it, and a change of the formula would make all of them anew.
    """
    digest = hashlib.sha256()
    for module in sorted(reachable(modules)):
        digest.update(module.encode())
        digest.update(module_path(module).read_bytes())
    return digest.hexdigest()[:16]


def reachable(modules: Iterable[str]) -> set[str]:
    """Return some modules and every module of the project that they import, near or far."""
    return _followed(modules, lambda module: filter(_is_module, _imports(module)))


def imported_packages(modules: Iterable[str]) -> set[str]:
    """Return the top-level packages, ours and others', that some modules import."""
    return {name.partition(".")[0] for module in modules for name in _imports(module)}


@cache
def code_digest(*modules: str) -> str:
    """Return the hash of the code that can change a number of a run, given its model's modules.

    It is the syntax of the model, its layers, training, measuring and reading. Comments,
    docstrings, annotations and the names and places of modules do not count. Once for a process:
    what it has loaded does not change with the files.
    """
    inside = _followed((*modules, *TRAINING), _imported_syntax)
    return hashed_syntax(inside.union(READING))


def hashed_syntax(modules: Iterable[str]) -> str:
    """Return the hash of the syntax of some modules, in an order that no name decides."""
    digests = sorted(hashlib.sha256(_syntax(m).text.encode()).hexdigest() for m in modules)
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _followed(modules: Iterable[str], imports: Callable[[str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(imports(module))
    return found


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Return what a module imports, by full names, inside functions too."""
    tree = ast.parse(module_path(module).read_text(encoding="utf-8"))
    return tuple(name for node in ast.walk(tree) for name in _named(node))


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imported_syntax(module: str) -> Iterable[str]:
    """Return the modules of the core that the code of a module uses, types apart."""
    if module in TABLES:
        return ()
    used = _syntax(module).imports
    return (name for name in used if name.startswith("lsm_core.") and name not in CARRIERS)


class _Syntax(NamedTuple):
    """What a module does, as text, and the modules of the project that it uses for it."""

    text: str
    imports: tuple[str, ...]


@cache
def _syntax(module: str) -> _Syntax:
    tree = ast.parse(module_path(module).read_text(encoding="utf-8"))
    if module in TABLES:
        counted = (ast.Import, ast.ImportFrom, ast.FunctionDef)
        tree.body = [node for node in tree.body if isinstance(node, counted)]
    bare = _Bare()
    text = ast.unparse(bare.visit(tree))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    kept = [node for bound, node in bare.imported if bound in used]
    names = sorted({_without_place(node) for node in kept})
    modules = {name for node in kept for name in _named(node) if _is_module(name)}
    return _Syntax("\n".join([*names, text]), tuple(sorted(modules)))


class _Bare(ast.NodeTransformer):
    """Takes docstrings, annotations and imports out of syntax, and keeps the imports aside.

    What is left need not be a program: a body may be empty.
    """

    def __init__(self) -> None:
        self.imported: list[tuple[str, ast.Import | ast.ImportFrom]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.imported.append((bound, ast.Import([alias])))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            only = ast.ImportFrom(node.module, [alias], node.level)
            self.imported.append((alias.asname or alias.name, only))

    def visit_If(self, node: ast.If) -> ast.AST | None:
        for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if for_types else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        node.returns = None
        is_settings = node.name == SETTINGS and not node.col_offset
        return None if is_settings else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if ast.unparse(node.targets[0]) == ENTRY and isinstance(node.value, ast.Call):
            node.value.keywords = [word for word in node.value.keywords if word.arg in BUILT]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _without_place(node: ast.Import | ast.ImportFrom) -> str:
    """Return an import as text; of the project's own modules only what is taken from them."""
    (name,) = node.names
    place = node.module if isinstance(node, ast.ImportFrom) else name.name
    if (place or "").partition(".")[0] not in PACKAGES:
        return ast.unparse(node)
    return f"{name.name if isinstance(node, ast.ImportFrom) else ''} as {name.asname or name.name}"


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
    folder = _folder(top) if top in PACKAGES else None
    if folder is None:
        return None
    base = folder.joinpath(*rest)
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
