import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lsm_core

TREE = ast.parse(Path(lsm_core.__file__).read_text())


def test_every_public_name_has_an_example_that_runs() -> None:
    for name in lsm_core.__all__:
        assert re.search(rf"lsm\.{name}\b", lsm_core.__doc__ or ""), name
    assert doctest.testmod(lsm_core, raise_on_error=True).failed == 0


def test_type_checkers_find_the_names_where_they_are_imported_from() -> None:
    imported = {
        alias.asname: node.module
        for node in ast.walk(TREE)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lsm_core.")
        for alias in node.names
    }
    assert imported == {name: f"lsm_core.{home}" for name, home in lsm_core._HOMES.items()}


def test_importing_the_core_imports_neither_torch_nor_numpy() -> None:
    code = "import lsm_core, sys; print({'torch', 'numpy', 'scipy'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


def test_the_public_names_are_listed_and_no_others_are_found() -> None:
    assert set(lsm_core.__all__) <= set(dir(lsm_core))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        lsm_core.Nothing  # noqa: B018


def test_the_program_itself_imports_from_the_modules() -> None:
    root = Path(lsm_core.__file__).parents[1]
    for folder in ("lsm_core", "storage", "flows"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                named = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                named += [node.module] if isinstance(node, ast.ImportFrom) else []
                assert "lsm_core" not in named, path
