"""The bill of materials lists what is installed, and an audit without a database fails nothing."""

import json
import runpy
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from tests.infra.manifests import INFRA, REPOSITORY


def run(what: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, INFRA / "packages.py", what],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_the_bill_lists_every_package_once_with_its_version() -> None:
    bill = json.loads(run("sbom").stdout)
    components = {each["name"]: each for each in bill["components"]}
    assert len(components) == len(bill["components"]) > 100
    assert components["numpy"]["purl"] == f"pkg:pypi/numpy@{version('numpy')}"
    assert components["prefect"]["version"] == version("prefect")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert json.loads(run("sbom").stdout) == bill


def test_an_audit_that_cannot_look_anything_up_says_so_and_fails_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-S", INFRA / "packages.py", "audit"],  # no installed package is seen
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nothing was looked up: ")


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
