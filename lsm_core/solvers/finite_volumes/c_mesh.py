"""The geometry of finite volumes on a C-shaped mesh of quadrilaterals."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class CMesh:
    """Cells between an array of nodes, wrapped around a body and closed along a wake.

    Along the start of the second axis the first and last `n_wake` cells meet each other, cell `i`
    and cell `n - 1 - i`; the cells between them stand on the wall of the body.
    Normals have the length of their face and point along the growing index; in both arrays the axis
    that they cross comes first.
    """

    nodes: Float[np.ndarray, "i_nodes j_nodes 2"]
    n_wake: int
    volumes: Float[np.ndarray, "i j"]
    normals_i: Float[np.ndarray, "i_nodes j 2"]
    normals_j: Float[np.ndarray, "j_nodes i 2"]

    @property
    def n_cells(self) -> tuple[int, int]:
        """Return the number of cells along both axes."""
        return self.volumes.shape[0], self.volumes.shape[1]

    @property
    def wall(self) -> slice:
        """Return which cells of the first axis stand on the wall."""
        return slice(self.n_wake, self.n_cells[0] - self.n_wake)


def c_mesh(nodes: Float[np.ndarray, "i_nodes j_nodes 2"], n_wake: int) -> CMesh:
    """Return the cells between nodes, whichever way round the mesh turns.

    A mesh whose cells are not all turned the same way is tangled and refused.
    """
    diagonal, other = nodes[1:, 1:] - nodes[:-1, :-1], nodes[:-1, 1:] - nodes[1:, :-1]
    areas = (diagonal[..., 0] * other[..., 1] - diagonal[..., 1] * other[..., 0]) / 2
    turn = np.sign(areas[0, 0])
    if not np.all(areas * turn > 0):
        raise ValueError("the mesh is tangled: some cells have no positive area")
    along_j = nodes[:, 1:] - nodes[:, :-1]
    along_i = np.ascontiguousarray((nodes[1:] - nodes[:-1]).swapaxes(0, 1))
    return CMesh(
        nodes=nodes,
        n_wake=n_wake,
        volumes=turn * areas,
        normals_i=turn * np.stack([along_j[..., 1], -along_j[..., 0]], axis=-1),
        normals_j=turn * np.stack([-along_i[..., 1], along_i[..., 0]], axis=-1),
    )
