"""A sample: named arrays, the plain data in which the core and the storage meet."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

Sample: TypeAlias = Mapping[str, np.ndarray[Any, np.dtype[Any]]]
