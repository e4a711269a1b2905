"""How large the jobs of cells are, where a pool makes a job for each: a pod, a batch job."""

from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from prefect import get_client

from flows.settings import CELL_DEPLOYMENT, CELL_POOL

if TYPE_CHECKING:
    from lsm_core.experiments.experiment import BoundExperiment

BARE_GIB = 8
"""Memory of a training without its samples: torch, CUDA and a batch on its way through a model."""
COPIES = 2
"""How often samples lie in memory: as they are read, and as a model takes them."""


class Sizes:
    """The job variables of cells, as far as the pool knows such and nobody has set them."""

    def of(self, cell: "BoundExperiment") -> dict[str, Any]:
        """Return what the job of a cell needs."""
        needed = {"gpus": 1, "memory": f"{memory_gib(cell)}Gi"}
        return {name: value for name, value in needed.items() if name in self._open}

    @cached_property
    def _open(self) -> frozenset[str]:
        """Return the variables that the pool's template has and the deployment leaves open.

        A pool of processes has none of them. One whose default is 0, as that of GPUs in a pool of
        processors, is meant so.
        """
        with get_client(sync_client=True) as client:
            template = client.read_work_pool(CELL_POOL).base_job_template
            deployment = client.read_deployment_by_name(CELL_DEPLOYMENT)
        known = template.get("variables", {}).get("properties", {})
        wanted = {name for name, said in known.items() if said.get("default") != 0}
        return frozenset(wanted) - frozenset(deployment.job_variables or {})


def memory_gib(cell: "BoundExperiment") -> int:
    """Return the memory that a cell needs, in GiB, by the bytes of its samples in float32."""
    a_sample = 4 * sum(prod(variable.shape) for variable in cell.benchmark.variables)
    samples = a_sample * sum(cell.data.split_sizes.values())
    return ceil(BARE_GIB + COPIES * samples / 2**30)
