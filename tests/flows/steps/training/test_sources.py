import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from flows.steps.training import sources
from lsm_core.names import ModelName


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sample_sources"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "a.py").write_text(
        "import os\ndef f():\n    from sample_sources.inner import b\n    return b\n"
    )
    (folder / "inner" / "b.py").write_text("from sample_sources.inner.c import g\n")
    (folder / "inner" / "c.py").write_text("def g(): return 1\n")
    (folder / "apart.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sources, "PACKAGES", ("sample_sources",))
    sources._imports.cache_clear()
    return folder


def test_a_change_far_down_changes_the_digest(package: Path) -> None:
    before = sources.source_digest("sample_sources.a")
    (package / "inner" / "c.py").write_text("def g(): return 2\n")
    assert sources.source_digest("sample_sources.a") != before


def test_a_change_elsewhere_does_not(package: Path) -> None:
    before = sources.source_digest("sample_sources.a")
    (package / "apart.py").write_text("changed = True\n")
    assert sources.source_digest("sample_sources.a") == before
    assert sources.source_digest("sample_sources.a", "sample_sources.apart") != before


def test_an_unknown_module_is_named() -> None:
    with pytest.raises(ValueError, match=r"no module lsm_core\.nothing"):
        sources.source_digest("lsm_core.nothing")


ROOT = Path(sources.__file__).parents[3]
CONVOLUTION = "lsm_core/layers/fourier.py"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a copy of the sources, of which digests are taken from now on."""
    for package in sources.PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    monkeypatch.setattr(sources, "_folder", lambda package: tmp_path / package)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    for cached in (sources.code_digest, sources._syntax, sources._imports):
        cached.cache_clear()


def codes() -> dict[str, str]:
    """Return the code of a run of every model, read anew."""
    forget()
    models = {name: (f"lsm_core.models.{name}",) for name in get_args(ModelName)}
    points = {f"{name} on points": (POINTS, *modules) for name, modules in models.items()}
    return {name: sources.code_digest(*modules) for name, modules in (models | points).items()}


POINTS = "lsm_core.models.point_cloud"


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_comments_docstrings_annotations_and_layout_change_no_run(tree: Path) -> None:
    before = codes()
    for path in tree.rglob("*.py"):
        path.write_text(path.read_text() + "\n\n# A remark.\n")
    change(tree / CONVOLUTION, '"""Return', '"""Give')
    loop = tree / "lsm_core/training/loop.py"
    change(loop, "-> bool:", "-> 'bool | None':")
    change(loop, "import dataclass\n", "import dataclass, field\n")
    one_line = "return parameter.device"
    change(loop, one_line, one_line.replace("return ", "return (\n        ") + "\n    )")
    assert codes() == before


def test_what_makes_no_number_changes_no_run(tree: Path) -> None:
    before = codes()
    for path in (
        *(tree / "storage").rglob("*.py"),
        *(tree / "flows").rglob("*.py"),
        *(tree / "lsm_core/reporting").rglob("*.py"),
        *(tree / "lsm_core").glob("*.py"),
    ):
        if path.name not in ("batches.py", "fields.py"):
            path.write_text(path.read_text() + "\nANOTHER_HELPER = 1\n")
    change(tree / "lsm_core/models/catalogue.py", "in get_args(ModelName)", "in ('lsm',)")
    assert codes() == before


def test_a_moved_and_renamed_module_changes_no_run(tree: Path) -> None:
    before = codes()
    (tree / "lsm_core/layers/spectral").mkdir()
    (tree / "lsm_core/layers/spectral/__init__.py").write_text("")
    (tree / CONVOLUTION).rename(tree / "lsm_core/layers/spectral/zeroth.py")
    for path in tree.rglob("*.py"):
        text = path.read_text().replace("layers.fourier import", "layers.spectral.zeroth import")
        path.write_text(text)
    assert "layers.spectral.zeroth" in (tree / "lsm_core/models/fno.py").read_text()
    assert codes() == before


def test_a_changed_operator_changes_exactly_the_models_that_use_it(tree: Path) -> None:
    before = codes()
    change(tree / CONVOLUTION, "(n_inputs * n_outputs)", "(n_inputs + n_outputs)")
    changed = {name for name, code in codes().items() if code != before[name]}
    users = {"fno", "ufno"}
    assert changed == users | {f"{name} on points" for name in users}


NUMBERS = [
    "lsm_core/training/loop.py",
    "lsm_core/training/state.py",
    "lsm_core/training/fine_tuning.py",
    "lsm_core/surrogates/normalization.py",
    "lsm_core/surrogates/operator.py",
    "lsm_core/evaluation/evaluate.py",
    "lsm_core/experiments/trial.py",
    "lsm_core/problems/fields.py",
    "flows/steps/training/fields.py",
    "storage/datasets/batches.py",
]


def test_what_trains_measures_or_reads_changes_every_run(tree: Path) -> None:
    seen = {sources.code_digest("lsm_core.models.kno")}
    for path in NUMBERS:
        (tree / path).write_text((tree / path).read_text() + "\nANOTHER = 1\n")
        forget()
        seen.add(sources.code_digest("lsm_core.models.kno"))
    assert len(seen) == 1 + len(NUMBERS)


def test_settings_change_no_code_for_they_are_hashed_as_settings(tree: Path) -> None:
    before = codes()
    change(tree / "lsm_core/models/fno.py", "smoke=FnoConfig(width=16", "smoke=FnoConfig(width=7")
    entry = "MODEL = ModelEntry(config=KnoConfig, network=Kno, preset=preset, needs_history=True)"
    change(tree / "lsm_core/models/kno.py", entry, "MODEL = ModelEntry(network=Kno, preset=None)")
    change(tree / "lsm_core/models/entry.py", "{1: (8, 16)}", "{1: (8, 20)}")
    change(tree / "lsm_core/experiments/protocols.py", "quick_epochs=15", "quick_epochs=16")
    change(tree / "lsm_core/experiments/presets.py", "epochs=501", "epochs=500")
    assert codes() == before


def test_how_a_model_is_built_changes_its_code(tree: Path) -> None:
    before = codes()
    change(tree / "lsm_core/models/fno.py", "latent=latent_network", "latent=None")
    change(tree / "lsm_core/models/kno.py", "network=Kno", "network=KoopmanOperator")
    changed = {name for name, code in codes().items() if code != before[name]}
    assert changed == {"fno", "fno on points", "kno", "kno on points"}
    change(tree / "lsm_core/models/catalogue.py", "nn.GELU()", "nn.ReLU()")
    assert not [name for name, code in codes().items() if code == before[name]]


def test_a_model_from_a_file_of_its_own_has_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own_model.py"
    file.write_text("from lsm_core.layers.head import Head\nMODEL = Head\n")
    module = ModuleType("own_model")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "own_model", module)
    forget()
    before = sources.code_digest("own_model")
    forget()
    file.write_text("from lsm_core.layers.head import Head\nMODEL = Head, 1\n")
    assert sources.code_digest("own_model") != before
    forget()
