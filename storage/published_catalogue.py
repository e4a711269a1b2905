"""The official data files of the eight benchmarks: where they are, what they hold, how it is split.

Nothing here opens a file. Shapes, axes and splits follow the code released with the FNO, Geo-FNO
and LSM papers. Addresses could only be checked against the places that publish them, not tried:
the first download of a file without a known sha256 fixes it in the store.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal
from urllib.parse import quote

from storage.published_benchmark import (
    Archive,
    PublishedArray,
    PublishedBenchmark,
    PublishedFile,
    PublishedVariable,
    Window,
    angles,
    cell_centres,
    downwards,
    nodes,
    numbers,
    periodic_nodes,
)


def hugging_face(repository: str, path: str) -> str:
    """Return the address that gives a file of a dataset repository on the Hugging Face hub."""
    return f"https://huggingface.co/datasets/{repository}/resolve/main/{quote(path)}"


def google_drive(file_id: str) -> str:
    """Return the address that gives a public file on Google Drive.

    `confirm` skips the page that warns of large files. A file that was fetched too often today
    still answers with a page, which the download recognises.
    """
    return f"https://drive.usercontent.google.com/download?id={file_id}&export=download&confirm=t"


_PDE_BENCHMARK = "kmario23/standard-pde-benchmark"
_CFD_BENCHMARK = "OneScience-Group/cfd_benchmark"
_FNO_DATA = "LDA1020/muTransfer-FNO-data"
_ELASTICITY_DATA = "asatheesh/PICore"


def _burgers() -> PublishedBenchmark:
    file = PublishedFile(
        path="burgers_data_R10.mat",
        urls=(
            "https://ssd.mathworks.com/supportfiles/nnet/data/burgers1d/burgers_data_R10.mat",
            hugging_face(_FNO_DATA, "burgers_data_R10.mat"),
        ),
        archive=Archive(
            name="Burgers_R10.zip",
            urls=(google_drive("16a8od4vidbiNR3WtaBPCSZ0T3moxjhYe"),),
            sha256="9cbbe5070556c777b1ba3bacd49da5c36ea8ed138ba51b6ee76a24b971066ecd",
        ),
        n_bytes=615_000_000,
    )

    def velocity(
        name: str, variable: str, role: Literal["input", "target"], time: int
    ) -> PublishedVariable:
        return PublishedVariable(
            name=name,
            dims=("x",),
            array=PublishedArray(files=(file.path,), variable=variable, axes=("sample", "x")),
            role=role,
            description=f"velocity at time {time}",
        )

    # The LSM code has no script for Burgers; this is FNO's: first 1000, last 100, every 8th point.
    split = {"train": range(1000), "validation": range(1000, 1100), "test": range(1948, 2048)}
    return PublishedBenchmark(
        name="burgers",
        title="Burgers",
        space=("x",),
        positions="periodic nodes",
        folder="burgers",
        files=(file,),
        n_samples=(2048,),
        axes={"x": 8192},
        coordinates={"x": periodic_nodes},
        variables=(velocity("initial", "a", "input", 0), velocity("final", "u", "target", 1)),
        splits={"release": split, "paper": split},
        strided=("x",),
        stride=8,
    )


def _darcy() -> PublishedBenchmark:
    archive = Archive(
        name="Darcy_421.zip",
        urls=(
            hugging_face("lkuang/example_data", "Darcy_421.zip"),
            google_drive("1Z1uxG9R8AdAGJprG5STcphysjm56_0Jf"),
        ),
        n_bytes=3_347_104_748,
    )

    def file(name: str, sha256: str) -> PublishedFile:
        return PublishedFile(
            path=name,
            urls=(
                hugging_face(_PDE_BENCHMARK, f"darcy/{name}"),
                hugging_face(_CFD_BENCHMARK, f"data/darcy/{name}"),
                hugging_face(_FNO_DATA, name),
            ),
            archive=archive,
            sha256=sha256,
            n_bytes=1_692_528_102,
        )

    files = (
        file(
            "piececonst_r421_N1024_smooth1.mat",
            "c8b1fd73a8bae85aa48afeb1fabd01204a03debe8e208524b72f615e13d2f664",
        ),
        file(
            "piececonst_r421_N1024_smooth2.mat",
            "c6522cf6cb3a8c4818268b2b07464a85e55ecd7206a23b4b1ac435bfae2e3eb5",
        ),
    )

    def array(variable: str) -> PublishedArray:
        return PublishedArray(
            files=tuple(each.path for each in files),
            variable=variable,
            axes=("sample", "x", "y"),
            dtype="float32",  # sources disagree on it; all readers cast
        )

    # Train on the first file, test on the second, of which the samples after those are unused.
    split = {
        "train": range(1000),
        "validation": range(1024 + 200, 1024 + 400),
        "test": range(1024, 1024 + 200),
    }
    return PublishedBenchmark(
        name="darcy",
        title="Darcy",
        space=("x", "y"),
        positions="cell centres",
        folder="darcy",
        files=files,
        n_samples=(1024, 1024),
        axes={"x": 421, "y": 421},
        coordinates={"x": cell_centres, "y": cell_centres},
        variables=(
            PublishedVariable(
                name="coefficient",
                dims=("x", "y"),
                array=array("coeff"),
                role="input",
                description="permeability of the medium",
            ),
            PublishedVariable(
                name="pressure",
                dims=("x", "y"),
                array=array("sol"),
                role="target",
                description="pressure of the fluid under a uniform source of 1",
            ),
        ),
        splits={"release": split, "paper": split},
        layout=(("train",), ("test", "validation")),
        strided=("x", "y"),
        stride=5,
    )


def _navier_stokes() -> PublishedBenchmark:
    name = "NavierStokes_V1e-5_N1200_T20.mat"
    file = PublishedFile(
        path=name,
        urls=(
            hugging_face(_PDE_BENCHMARK, f"ns/{name}"),
            hugging_face(_CFD_BENCHMARK, f"data/ns/{name}"),
        ),
        archive=Archive(
            name="NavierStokes_V1e-5_N1200_T20.zip",
            urls=(google_drive("1lVgpWMjv9Z6LEv3eZQ_Qgj54lYeqnGl5"),),
        ),
        sha256="b4995d0180ec15f06878e17527fd3e08a8f504bbc059ee025caffad11a9a82c0",
        n_bytes=413_000_000,
    )
    vorticity = PublishedArray(
        files=(name,), variable="u", axes=("sample", "x", "y", "time"), dtype="float32"
    )

    def frames(
        name: str, role: Literal["input", "target"], window: Window, when: str
    ) -> PublishedVariable:
        return PublishedVariable(
            name=name,
            dims=("x", "y", window.dim),
            array=vorticity,
            role=role,
            description=f"vorticity v_x - u_y at times {when}",
            window=window,
        )

    # All 1200 samples are used: there are none left to validate on.
    split = {"train": range(1000), "validation": range(1000, 1000), "test": range(1000, 1200)}
    return PublishedBenchmark(
        name="navier_stokes",
        title="Navier-Stokes",
        space=("x", "y"),
        positions="periodic nodes",
        folder="navier_stokes",
        files=(file,),
        n_samples=(1200,),
        axes={"x": 64, "y": 64, "time": 20},
        coordinates={
            "x": periodic_nodes,
            "y": periodic_nodes,
            "time": partial(numbers, first=1),
        },
        variables=(
            frames(
                "vorticity_history",
                "input",
                Window(dim="history", axis="time", start=0, stop=10),
                "1 to 10",
            ),
            frames(
                "vorticity_future",
                "target",
                Window(dim="future", axis="time", start=10, stop=20),
                "11 to 20",
            ),
        ),
        splits={"release": split, "paper": split},
        strided=("x", "y"),
        shared={"t": "time"},
    )


_ELASTICITY_SPLIT = {
    "train": range(1000),
    "validation": range(1000, 1200),
    "test": range(1800, 2000),
}


def _elasticity_file(
    path: str, file_id: str | None = None, sha256: str | None = None, n_bytes: int = 0
) -> PublishedFile:
    urls = [hugging_face(_CFD_BENCHMARK, f"data/elasticity/{path}")]
    if sha256 is not None:
        urls.insert(0, hugging_face(_ELASTICITY_DATA, f"original_data/{path.rsplit('/', 1)[-1]}"))
    if file_id is not None:
        urls.append(google_drive(file_id))
    return PublishedFile(path=path, urls=tuple(urls), sha256=sha256, n_bytes=n_bytes)


def _elasticity_p() -> PublishedBenchmark:
    points = _elasticity_file(
        "Meshes/Random_UnitCell_XY_10.npy",
        "1I-fO-RsFvD3nqBuFrg67R0yqTFdD_gpA",
        "29c615b7c8b0ef94252e4def4cd9999653b8759104619eb728b91a1cac5b665f",
        31_104_128,
    )
    stress = _elasticity_file(
        "Meshes/Random_UnitCell_sigma_10.npy",
        "1Ia5izgUum-IQLdO6PW70HO8AdAqA_IVb",
        "eb8102b580001bab80ee99bfc33289f727491e1d8edab2a4a94abc37a348fa1a",
        15_552_128,
    )
    radii = _elasticity_file("Meshes/Random_UnitCell_rr_10.npy", n_bytes=672_128)
    return PublishedBenchmark(
        name="elasticity_p",
        title="Elasticity on points",
        space=("point",),
        positions="scattered points",
        folder="elasticity",
        files=(points, stress, radii),
        n_samples=(2000,),
        axes={"point": 972, "component": 2, "angle": 42},
        coordinates={"angle": angles},
        variables=(
            PublishedVariable(
                name="points",
                dims=("point", "component"),
                array=PublishedArray(files=(points.path,), axes=("point", "component", "sample")),
                role="input",
                description="position in the unit cell",
            ),
            PublishedVariable(
                name="stress",
                dims=("point",),
                array=PublishedArray(files=(stress.path,), axes=("point", "sample")),
                role="target",
                unit="Pa",
                description="stress, most likely von Mises'",
            ),
            PublishedVariable(
                name="radii",
                dims=("angle",),
                array=PublishedArray(files=(radii.path,), axes=("angle", "sample")),
                role="input",
                description="radius of the void; the last angle is the first",
            ),
        ),
        splits={"release": _ELASTICITY_SPLIT, "paper": _ELASTICITY_SPLIT},
    )


def _elasticity_g() -> PublishedBenchmark:
    mask, stress = (
        _elasticity_file(f"Interp/Random_UnitCell_{quantity}_10_interp.npy", n_bytes=26_896_128)
        for quantity in ("mask", "sigma")
    )
    return PublishedBenchmark(
        name="elasticity_g",
        title="Elasticity on a grid",
        space=("x", "y"),
        positions="nodes",
        folder="elasticity",
        files=(mask, stress),
        n_samples=(2000,),
        axes={"x": 41, "y": 41},
        coordinates={"x": nodes, "y": nodes},
        variables=(
            PublishedVariable(
                name="mask",
                dims=("x", "y"),
                array=PublishedArray(files=(mask.path,), axes=("x", "y", "sample")),
                role="input",
                description="1 in the material, 0 in the void",
            ),
            PublishedVariable(
                name="stress",
                dims=("x", "y"),
                array=PublishedArray(files=(stress.path,), axes=("x", "y", "sample")),
                role="target",
                unit="Pa",
                description="stress, 0 in the void",
                mask="mask",
            ),
        ),
        splits={"release": _ELASTICITY_SPLIT, "paper": _ELASTICITY_SPLIT},
        strided=("x", "y"),
    )


def _plasticity() -> PublishedBenchmark:
    name = "plas_N987_T20.mat"
    file = PublishedFile(
        path=name,
        urls=(
            hugging_face(_PDE_BENCHMARK, f"plasticity/{name}"),
            hugging_face(_CFD_BENCHMARK, f"data/plas/{name}"),
        ),
        sha256="b58681e7777531b34889da46b506d2f18845c5d7b194859394dfd958cf28178f",
        n_bytes=1_978_600_000,
    )
    # Seven samples are left between the first 900 and the last 80.
    split = {"train": range(900), "validation": range(900, 907), "test": range(907, 987)}
    return PublishedBenchmark(
        name="plasticity",
        title="Plasticity: forging by a random die",
        space=("x", "y", "time"),
        positions="nodes",
        folder="plasticity",
        files=(file,),
        n_samples=(987,),
        axes={"x": 101, "y": 31, "time": 20, "channel": 4},
        coordinates={
            "x": partial(downwards, first=0.35, step=0.5),
            "y": partial(downwards, first=14.9, step=0.5),
            "time": partial(numbers, first=1),
        },
        variables=(
            PublishedVariable(
                name="die",
                dims=("x",),
                array=PublishedArray(files=(name,), variable="input", axes=("sample", "x")),
                role="input",
                unit="mm",
                description="profile of the die",
            ),
            PublishedVariable(
                name="state",
                dims=("x", "y", "time", "channel"),
                array=PublishedArray(
                    files=(name,),
                    variable="output",
                    axes=("sample", "x", "y", "time", "channel"),
                ),
                role="target",
                unit="mm",
                description="position x, y and displacement x, y of the material",
            ),
        ),
        splits={"release": split, "paper": split},
        strided=("x", "y"),
    )


def _mesh_variables(
    x: PublishedArray, y: PublishedArray, along: str, across: str
) -> tuple[PublishedVariable, ...]:
    return tuple(
        PublishedVariable(
            name=name, dims=("x", "y"), array=array, role="input", description=description
        )
        for name, array, description in (("mesh_x", x, along), ("mesh_y", y, across))
    )


def _channels(
    array: PublishedArray, target: str, channels: Mapping[str, str]
) -> tuple[PublishedVariable, ...]:
    """Return the channels of a flow in the order of the file; all but one are parameters."""
    return tuple(
        PublishedVariable(
            name=name,
            dims=("x", "y"),
            array=array,
            role="target" if name == target else "parameter",
            description=description,
            pick={"channel": number},
        )
        for number, (name, description) in enumerate(channels.items())
    )


def _meshed(
    paths: tuple[str, str, str], mirror_folder: str, sizes: tuple[int, int, int]
) -> tuple[tuple[PublishedFile, ...], tuple[PublishedArray, ...]]:
    """Return the files and arrays of a flow on a mesh: x, y and the channels of the flow.

    The path on the mirror follows from its list of folders.
    """
    files = tuple(
        PublishedFile(
            path=path,
            urls=(hugging_face(_CFD_BENCHMARK, f"data/{mirror_folder}/{path}"),),
            n_bytes=size,
        )
        for path, size in zip(paths, sizes, strict=True)
    )
    axes = (("sample", "x", "y"), ("sample", "x", "y"), ("sample", "channel", "x", "y"))
    arrays = tuple(
        PublishedArray(files=(path,), axes=each) for path, each in zip(paths, axes, strict=True)
    )
    return files, arrays


def _airfoil() -> PublishedBenchmark:
    files, (x, y, flow) = _meshed(
        (
            "naca/NACA_Cylinder_X.npy",
            "naca/NACA_Cylinder_Y.npy",
            "naca/NACA_Cylinder_Q.npy",
        ),
        "airfoil",
        (224_518_448, 224_518_448, 1_122_591_728),
    )
    drive = (
        "16EY0obqsccypaDFVY0wlsXX73SlD5TMy",
        "1rJUPtIhTAsG8TQnqV5mljjgQlyz0NJvJ",
        "1AjW0t0YolY680J6xTQJ_g5bqTSJAZDZc",
    )
    split = {"train": range(1000), "test": range(1000, 1200), "validation": range(1200, 1400)}
    return PublishedBenchmark(
        name="airfoil",
        title="Airfoil: transonic Euler flow",
        space=("x", "y"),
        positions="nodes",
        folder="airfoil",
        files=tuple(
            replace(file, urls=(*file.urls, google_drive(file_id)))
            for file, file_id in zip(files, drive, strict=True)
        ),
        n_samples=(2490,),
        axes={"x": 221, "y": 51, "channel": 5},
        coordinates={"x": numbers, "y": numbers},
        variables=(
            *_mesh_variables(x, y, "position of the node along the flow", "position across it"),
            *_channels(
                flow,
                "mach",
                {
                    "density": "density",
                    "velocity_x": "velocity along x",
                    "velocity_y": "velocity along y",
                    "pressure": "pressure",
                    "mach": "Mach number",
                },
            ),
        ),
        # The paper's table counts 100 test samples, the released script takes 200.
        splits={"release": split, "paper": {**split, "test": range(1000, 1100)}},
        layout=(("train", "test", "validation"),),
        strided=("x", "y"),
    )


def _pipe() -> PublishedBenchmark:
    files, (x, y, flow) = _meshed(
        ("Pipe_X.npy", "Pipe_Y.npy", "Pipe_Q.npy"),
        "pipe",
        (307_525_808, 307_525_808, 922_577_168),
    )
    split = {"train": range(1000), "test": range(1000, 1200), "validation": range(1200, 1400)}
    return PublishedBenchmark(
        name="pipe",
        title="Pipe: steady incompressible flow",
        space=("x", "y"),
        positions="nodes",
        folder="pipe",
        files=files,
        n_samples=(2310,),
        axes={"x": 129, "y": 129, "channel": 3},
        coordinates={"x": numbers, "y": numbers},
        variables=(
            *_mesh_variables(
                x, y, "position of the node along the pipe", "position of the node across the pipe"
            ),
            *_channels(
                flow,
                "velocity_x",
                {
                    "velocity_x": "velocity along x",
                    "velocity_y": "velocity along y",
                    "pressure": "pressure",
                },
            ),
        ),
        splits={"release": split, "paper": split},
        layout=(("train", "test", "validation"),),
        strided=("x", "y"),
    )


PUBLISHED: dict[str, PublishedBenchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        _burgers(),
        _darcy(),
        _navier_stokes(),
        _elasticity_p(),
        _elasticity_g(),
        _plasticity(),
        _airfoil(),
        _pipe(),
    )
}
