import json
import pickle
import re
from importlib.resources import files
from typing import Any, get_args
from urllib.parse import urlsplit

import numpy as np
import pytest

from lsm_core.benchmarks.airfoil import Airfoil
from lsm_core.benchmarks.benchmark import Benchmark
from lsm_core.benchmarks.burgers import Burgers
from lsm_core.benchmarks.darcy import Darcy
from lsm_core.benchmarks.elasticity_grid import ElasticityGrid
from lsm_core.benchmarks.elasticity_points import ElasticityPoints
from lsm_core.benchmarks.navier_stokes import NavierStokes
from lsm_core.benchmarks.pipe import Pipe
from lsm_core.benchmarks.plasticity import Plasticity
from storage.datasets.schema import SPLITS
from storage.official.catalogue import SplitRule, checked_catalogue, published_benchmarks

NAMES = (
    "burgers",
    "darcy",
    "navier_stokes",
    "elasticity_p",
    "elasticity_g",
    "plasticity",
    "airfoil",
    "pipe",
)


def test_all_eight_benchmarks_are_there() -> None:
    assert tuple(published_benchmarks()) == NAMES
    assert [benchmark.name for benchmark in published_benchmarks().values()] == list(NAMES)


def test_the_first_addresses_are_those_with_known_hashes() -> None:
    darcy = published_benchmarks()["darcy"].files[0]
    assert darcy.urls[0] == (
        "https://huggingface.co/datasets/kmario23/standard-pde-benchmark/resolve/main/darcy/"
        "piececonst_r421_N1024_smooth1.mat"
    )
    assert darcy.archive is not None
    assert darcy.archive.urls[-1] == (
        "https://drive.usercontent.google.com/download"
        "?id=1Z1uxG9R8AdAGJprG5STcphysjm56_0Jf&export=download&confirm=t"
    )
    assert published_benchmarks()["elasticity_p"].files[0].urls[0] == (
        "https://huggingface.co/datasets/asatheesh/PICore/resolve/main/original_data/"
        "Random_UnitCell_XY_10.npy"
    )


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("files.0.urls", "no list"),
        ("n_samples.0", "many"),
        ("variables.1.role", "output"),
        ("variables.0.array.axis", ["x"]),
        ("splits.release.train", ["first", "last"]),
        ("coordinates.x.rule", "random"),
    ],
)
def test_a_wrong_entry_is_said_with_its_place(place: str, wrong: Any) -> None:
    text = (files("storage.official") / "catalogue.json").read_text(encoding="utf-8")
    table = json.loads(text)
    *parents, last = (int(key) if key.isdecimal() else key for key in place.split("."))
    entry = table["burgers"]
    for key in parents:
        entry = entry[key]
    entry[last] = wrong
    sentence = rf"the catalogue of official files is wrong at burgers\.{re.escape(place)}: "
    with pytest.raises(ValueError, match=sentence) as caught:
        checked_catalogue(table)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_file_can_be_asked_for_and_is_read(name: str) -> None:
    benchmark = published_benchmarks()[name]
    read = {path for variable in benchmark.variables for path in variable.array.files}
    assert {file.path for file in benchmark.files} == read
    for file in benchmark.files:
        urls = [*file.urls, *(file.archive.urls if file.archive else ())]
        assert urls
        assert all(urlsplit(url).scheme == "https" for url in urls)
        assert file.n_bytes is not None
        for sha256 in (file.sha256, file.archive.sha256 if file.archive else None):
            assert sha256 is None or (len(sha256) == 64 and int(sha256, 16) >= 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", get_args(SplitRule))
def test_parts_lie_within_the_files_and_do_not_overlap(name: str, rule: SplitRule) -> None:
    benchmark = published_benchmarks()[name]
    split = benchmark.splits[rule]
    samples = [sample for part in SPLITS for sample in split[part]]
    assert len(samples) == len(set(samples))
    assert min(samples) >= 0
    assert max(samples) < sum(benchmark.n_samples)


def test_parts_are_the_indices_of_the_released_code() -> None:
    def bounds(name: str) -> list[tuple[int, int]]:
        split = published_benchmarks()[name].splits["release"]
        return [(split[part].start, split[part].stop) for part in ("train", "test")]

    assert bounds("burgers") == [(0, 1000), (2048 - 100, 2048)]
    # Counted through both files: the test samples are the first of the second one.
    assert bounds("darcy") == [(0, 1000), (1024, 1224)]
    assert bounds("navier_stokes") == [(0, 1000), (1000, 1200)]
    assert bounds("elasticity_p") == bounds("elasticity_g") == [(0, 1000), (1800, 2000)]
    assert bounds("plasticity") == [(0, 900), (907, 987)]
    assert bounds("airfoil") == bounds("pipe") == [(0, 1000), (1000, 1200)]
    assert published_benchmarks()["airfoil"].splits["paper"]["test"] == range(1000, 1100)


def test_shapes_are_those_of_the_official_files() -> None:
    def shapes(name: str) -> dict[str, tuple[int, ...]]:
        benchmark = published_benchmarks()[name]
        return {
            f"{path.rsplit('/', 1)[-1]} {array.variable or ''}".strip(): benchmark.shape(
                array, path
            )
            for array in (variable.array for variable in benchmark.variables)
            for path in array.files
        }

    assert shapes("burgers")["burgers_data_R10.mat a"] == (2048, 8192)
    assert shapes("darcy")["piececonst_r421_N1024_smooth2.mat sol"] == (1024, 421, 421)
    assert shapes("navier_stokes")["NavierStokes_V1e-5_N1200_T20.mat u"] == (1200, 64, 64, 20)
    assert shapes("elasticity_p") == {
        "Random_UnitCell_XY_10.npy": (972, 2, 2000),
        "Random_UnitCell_sigma_10.npy": (972, 2000),
        "Random_UnitCell_rr_10.npy": (42, 2000),
    }
    assert shapes("elasticity_g")["Random_UnitCell_mask_10_interp.npy"] == (41, 41, 2000)
    assert shapes("plasticity")["plas_N987_T20.mat output"] == (987, 101, 31, 20, 4)
    assert shapes("airfoil")["NACA_Cylinder_Q.npy"] == (2490, 5, 221, 51)
    assert shapes("pipe")["Pipe_Q.npy"] == (2310, 3, 129, 129)


# Our own problems, on the grids of the published protocol.
GENERATED: tuple[Benchmark, ...] = (
    Burgers(resolution=1024),
    Darcy(resolution=421, stride=5),
    NavierStokes(),
    ElasticityPoints(),
    ElasticityGrid(),
    Plasticity(),
    Airfoil(),
    Pipe(),
)


@pytest.mark.parametrize("ours", GENERATED, ids=NAMES)
def test_published_data_looks_like_our_own(ours: Benchmark) -> None:
    published = published_benchmarks()[ours.name]
    assert (published.title, published.space, published.positions) == (
        ours.title,
        ours.space,
        ours.positions,
    )
    variables = {variable.name: variable for variable in published.variables}
    for role in ("input", "target"):
        assert [v.name for v in published.variables if v.role == role] == [
            v.name for v in ours.with_role(role)
        ]
        for variable in ours.with_role(role):
            found = variables[variable.name]
            shape = [published.size(found, dim, published.stride) for dim in found.dims]
            assert (found.dims, tuple(shape), found.unit) == (
                variable.dims,
                variable.shape,
                variable.unit,
            )
    for dim, values in ours.coordinates.items():
        if (ours.name, dim) != (
            "plasticity",
            "time",
        ):  # the times of the published frames are unknown
            np.testing.assert_array_equal(
                published.coordinates_of(dim, published.stride), values, err_msg=dim
            )


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_can_be_sent_to_another_process(name: str) -> None:
    copy = pickle.loads(pickle.dumps(published_benchmarks()[name]))
    assert copy.splits == published_benchmarks()[name].splits
    assert copy.files == published_benchmarks()[name].files
