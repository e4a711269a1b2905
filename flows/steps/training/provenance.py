"""By whom, and by which sources, a run is made: told with its result."""

import getpass
import subprocess
from pathlib import Path


def made_by() -> dict[str, str]:
    """Return the user and, where the sources are a git clone, its commit."""
    known = {"user": _user(), "commit": _commit()}
    return {name: value for name, value in known.items() if value}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        return ""


def _commit() -> str:
    command = ("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
