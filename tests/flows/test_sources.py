from pathlib import Path

import pytest

from flows.steps import sources


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


def test_a_run_depends_on_its_own_model_and_on_no_other() -> None:
    modules = ("lsm_core.models.fno", "flows.steps.training")
    reached = sources.reachable(modules, ("lsm_core.models.catalogue",))
    assert {"lsm_core.layers.fourier", "lsm_core.training.loop"} <= reached
    assert "lsm_core.models.lsm" not in reached
    assert "lsm_core.reporting.document" not in reached
    assert "lsm_core.models.lsm" in sources.reachable(modules)


def test_what_is_left_out_is_not_followed(package: Path) -> None:
    before = sources.source_digest("sample_sources.a", leaving_out=("sample_sources.inner.b",))
    (package / "inner" / "c.py").write_text("def g(): return 3\n")
    after = sources.source_digest("sample_sources.a", leaving_out=("sample_sources.inner.b",))
    assert after == before
