"""An audit without a database fails nothing, and calls nothing clean that it did not look up."""

import runpy
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.infra.manifests import INFRA


def test_an_audit_that_cannot_look_anything_up_says_so_and_fails_nothing(tmp_path: Path) -> None:
    venv.create(tmp_path)  # in which pip-audit is missing
    done = subprocess.run(
        [tmp_path / "bin" / "python", INFRA / "packages.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nothing was looked up: ")
    assert "No module named pip_audit" in done.stdout


CLEAN = {"name": "numpy", "version": "2.3.0", "vulns": []}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}
HOLE = {"name": "x", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}


@pytest.mark.parametrize(
    ("found", "said", "has_holes"),
    [
        ([CLEAN, CLEAN], "no known hole in 2 packages", False),
        ([CLEAN, UNKNOWN], "no known hole in 1 packages; of 1 more the index does not", False),
        ([UNKNOWN, UNKNOWN], "nothing was looked up: the index tells of none of 2", False),
        ([CLEAN, UNKNOWN, HOLE], "x 1: CVE-1, mended in ['2']", True),
    ],
)
def test_a_package_that_was_not_looked_up_is_not_called_clean(
    found: list[dict[str, Any]], said: str, has_holes: bool
) -> None:
    text, bad = runpy.run_path(str(INFRA / "packages.py"))["verdict"](found)
    assert text.startswith(said)
    assert bad is has_holes
