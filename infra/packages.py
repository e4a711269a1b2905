"""Whether any of the pinned packages has a known hole: `python infra/packages.py`.

The audit ends with 0 where pip-audit is missing or nothing answers, and says that nothing was
looked up: a build without a network is not a failed build.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PINS = Path(__file__).parents[1] / "constraints.txt"
SECONDS = 300


def audit() -> int:
    """Return 1 if a pinned package has a known hole, else 0; print what was found."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(PINS), "--no-deps"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, subprocess.TimeoutExpired) as error:
        said = "" if isinstance(error, subprocess.TimeoutExpired) else done.stderr
        last = said.strip().rpartition("\n")[2] or f"no answer within {SECONDS} s"
        print(f"nothing was looked up: {last}")
        return 0
    text, has_holes = verdict(found)
    print(text)
    return int(has_holes)


def verdict(found: list[dict[str, Any]]) -> tuple[str, bool]:
    """Return what to say of pip-audit's findings, and whether there is a hole among them.

    A package that the index does not tell of, as mirrors often do not, was not found clean.
    """
    looked_up = [each for each in found if "skip_reason" not in each]
    holes = [
        f"{each['name']} {each['version']}: {hole['id']}, mended in {hole['fix_versions']}"
        for each in looked_up
        for hole in each.get("vulns", [])
    ]
    if holes:
        return "\n".join(holes), True
    if not looked_up:
        return f"nothing was looked up: the index tells of none of {len(found)} packages", False
    left = len(found) - len(looked_up)
    rest = f"; of {left} more the index does not tell" if left else ""
    return f"no known hole in {len(looked_up)} packages{rest}", False


if __name__ == "__main__":
    sys.exit(audit())
