"""Where results come from: the versions that made them."""

import platform
from importlib.metadata import version
from typing import Any

PACKAGES = ("numpy", "scipy", "torch", "zarr")


def environment() -> dict[str, Any]:
    """Return the interpreter, the machine's kind and the packages that decide numbers."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        **{package: version(package) for package in PACKAGES},
    }
