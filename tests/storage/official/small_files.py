"""Small files in the official formats, written without the code under test."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from scipy.io import savemat

from storage.location import Location
from storage.official import conversion
from storage.official.catalogue import PublishedBenchmark, published_benchmarks

Shape = tuple[int, ...]
Raw = dict[str, dict[str, np.ndarray]]
"""Arrays by the file and the variable in it; the variable of an .npy file is ''."""

N = 30
SPLIT = {"train": range(14), "validation": range(15, 18), "test": range(22, 30)}
DARCY_SPLIT = {"train": range(14), "validation": range(16 + 8, 16 + 11), "test": range(16, 16 + 8)}

SHAPES: dict[str, dict[str, dict[str, Shape]]] = {
    "burgers": {"burgers_data_R10.mat": {"a": (N, 16), "u": (N, 16), "a_smooth": (N, 16)}},
    "darcy": {
        "piececonst_r421_N1024_smooth1.mat": {"coeff": (16, 21, 21), "sol": (16, 21, 21)},
        "piececonst_r421_N1024_smooth2.mat": {"coeff": (14, 21, 21), "sol": (14, 21, 21)},
    },
    "navier_stokes": {
        "NavierStokes_V1e-5_N1200_T20.mat": {"a": (N, 8, 8), "u": (N, 8, 8, 20), "t": (1, 20)}
    },
    "elasticity_p": {
        "Meshes/Random_UnitCell_XY_10.npy": {"": (12, 2, N)},
        "Meshes/Random_UnitCell_sigma_10.npy": {"": (12, N)},
        "Meshes/Random_UnitCell_rr_10.npy": {"": (7, N)},
    },
    "elasticity_g": {
        "Interp/Random_UnitCell_mask_10_interp.npy": {"": (9, 9, N)},
        "Interp/Random_UnitCell_sigma_10_interp.npy": {"": (9, 9, N)},
    },
    "plasticity": {"plas_N987_T20.mat": {"input": (N, 11), "output": (N, 11, 5, 6, 4)}},
    "airfoil": {
        "naca/NACA_Cylinder_X.npy": {"": (N, 13, 7)},
        "naca/NACA_Cylinder_Y.npy": {"": (N, 13, 7)},
        "naca/NACA_Cylinder_Q.npy": {"": (N, 5, 13, 7)},
    },
    "pipe": {
        "Pipe_X.npy": {"": (N, 9, 11)},
        "Pipe_Y.npy": {"": (N, 9, 11)},
        "Pipe_Q.npy": {"": (N, 3, 9, 11)},
    },
}

AXES: dict[str, dict[str, int]] = {
    "burgers": {"x": 16},
    "darcy": {"x": 21, "y": 21},
    "navier_stokes": {"x": 8, "y": 8, "time": 20},
    "elasticity_p": {"point": 12, "component": 2, "angle": 7},
    "elasticity_g": {"x": 9, "y": 9},
    "plasticity": {"x": 11, "y": 5, "time": 6, "channel": 4},
    "airfoil": {"x": 13, "y": 7, "channel": 5},
    "pipe": {"x": 9, "y": 11, "channel": 3},
}


def small_benchmark(name: str) -> PublishedBenchmark:
    """Return a benchmark as published, but of small size, without addresses or known hashes."""
    official = published_benchmarks()[name]
    split = DARCY_SPLIT if name == "darcy" else SPLIT
    files = tuple(replace(file, urls=(), sha256=None, n_bytes=None) for file in official.files)
    return replace(
        official,
        files=tuple(replace(file, archive=None) for file in files),
        n_samples=(16, 14) if name == "darcy" else (N,),
        axes=AXES[name],
        splits={"release": split, "paper": {**split, "test": split["test"][:4]}},
    )


def raw_arrays(name: str, seed: int = 0) -> Raw:
    """Return random values for every array of a benchmark's files; masks of 0 and 1."""
    random = np.random.default_rng(seed)
    raw = {
        file: {variable: random.standard_normal(shape) for variable, shape in variables.items()}
        for file, variables in SHAPES[name].items()
    }
    for file, variables in raw.items():
        if "mask" in file:
            variables[""] = (variables[""] > 0).astype(np.float64)
    return raw


def write_official(raw: Raw, folder: Path, mat_version: str = "5") -> None:
    """Write files: .npy, or MATLAB of version 5, 7 (compressed) or 7.3 (HDF5, reversed axes)."""
    for file, variables in raw.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, variables[""])
        elif mat_version == "7.3":
            write_mat73(path, variables)
        else:
            savemat(path, variables, do_compression=mat_version == "7")


def write_mat73(path: Path, variables: Mapping[str, np.ndarray]) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in variables.items():
            chunks = tuple(max(1, size // 2) for size in values.shape[::-1])
            file.create_dataset(name, data=values.T, chunks=chunks, compression="gzip")
    with path.open("r+b") as opened:
        opened.write(b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + b"\x00\x02IM")


def expected_variables(  # noqa: PLR0911 - one return a benchmark
    name: str, raw: Raw, stride: int
) -> dict[str, np.ndarray]:
    """Return every variable for all published samples, by the words of the papers."""
    s = stride
    values = {file.rsplit("/", 1)[-1]: arrays for file, arrays in raw.items()}
    if name == "burgers":
        file = values["burgers_data_R10.mat"]
        return {"initial": file["a"][:, ::s], "final": file["u"][:, ::s]}
    if name == "darcy":
        both = [values[f"piececonst_r421_N1024_smooth{i}.mat"] for i in (1, 2)]
        return {
            "coefficient": np.concatenate([file["coeff"] for file in both])[:, ::s, ::s],
            "pressure": np.concatenate([file["sol"] for file in both])[:, ::s, ::s],
        }
    if name == "navier_stokes":
        vorticity = values["NavierStokes_V1e-5_N1200_T20.mat"]["u"][:, ::s, ::s]
        return {
            "vorticity_history": vorticity[..., :10],
            "vorticity_future": vorticity[..., 10:],
        }
    if name == "elasticity_p":
        return {
            "points": values["Random_UnitCell_XY_10.npy"][""].transpose(2, 0, 1),
            "stress": values["Random_UnitCell_sigma_10.npy"][""].T,
            "radii": values["Random_UnitCell_rr_10.npy"][""].T,
        }
    if name == "elasticity_g":
        mask = values["Random_UnitCell_mask_10_interp.npy"][""].transpose(2, 0, 1)
        stress = values["Random_UnitCell_sigma_10_interp.npy"][""].transpose(2, 0, 1)
        return {"mask": mask[:, ::s, ::s], "stress": (mask * stress)[:, ::s, ::s]}
    if name == "plasticity":
        file = values["plas_N987_T20.mat"]
        return {"die": file["input"][:, ::s], "state": file["output"][:, ::s, ::s]}
    return _flow_on_a_mesh(name, values, s)


def _flow_on_a_mesh(
    name: str, values: Mapping[str, Mapping[str, np.ndarray]], s: int
) -> dict[str, np.ndarray]:
    prefix = "NACA_Cylinder" if name == "airfoil" else "Pipe"
    x, y, flow = (values[f"{prefix}_{axis}.npy"][""] for axis in "XYQ")
    channels = (
        ("density", "velocity_x", "velocity_y", "pressure", "mach")
        if name == "airfoil"
        else ("velocity_x", "velocity_y", "pressure")
    )
    return {
        "mesh_x": x[:, ::s, ::s],
        "mesh_y": y[:, ::s, ::s],
        **{channel: flow[:, i, ::s, ::s] for i, channel in enumerate(channels)},
    }


def convert_in_small_blocks(name: str, root: str) -> None:
    """Convert downloaded files in many blocks; a target for processes that are killed."""
    conversion.MOST_SAMPLES_PER_BLOCK = 2
    conversion.convert_published(small_benchmark(name), Location.parse(root))
