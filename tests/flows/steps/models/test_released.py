import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from flows.errors import BadInput
from flows.steps.models import released
from flows.steps.models.released import import_released, read_state
from lsm_core.models.released_weights import ReleasedSettings, from_released
from storage.location import Location
from tests.lsm_core.models.straightforward import StraightforwardLsm

SMALL = ReleasedSettings(in_dim=1, out_dim=1, d_model=8, patch_size=(2, 2), padding=(3, 3))


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    monkeypatch.setitem(released.SCRIPTS, "darcy", SMALL)
    torch.manual_seed(0)
    options = {"in_dim": 1, "out_dim": 1, "d_model": 8, "patch_size": (2, 2), "padding": (3, 3)}
    return dict(StraightforwardLsm(**options).state_dict())


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_a_checkpoint_becomes_a_model_of_ours(
    suffix: str, state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / f"darcy{suffix}"
    if suffix == ".pt":
        torch.save(state, path)
    else:
        np.savez(path, **{f"state/{name}": value.numpy() for name, value in state.items()})
    folder = import_released(path, "darcy", "theirs", Location.parse(str(tmp_path)))
    kept = load((folder / "weights.safetensors").read_bytes())
    expected = from_released(state, SMALL).state_dict()
    assert kept.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(kept[name], value), name
    assert json.loads((folder / "model.json").read_bytes())["benchmark"] == "darcy"


def test_another_model_is_refused_in_a_sentence(
    state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    state.pop("fc0.weight")
    torch.save(state, tmp_path / "darcy.pt")
    with pytest.raises(BadInput, match="does not hold the released LSM of darcy"):
        import_released(tmp_path / "darcy.pt", "darcy", "x", Location.parse(str(tmp_path)))


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this must never run",)


def test_a_file_that_could_run_code_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"fc0.weight": Harmful()}, tmp_path / "bad.pt")
    with pytest.raises(BadInput, match="can be read safely"):
        read_state(tmp_path / "bad.pt")
    assert "never run" not in capsys.readouterr().out


def test_no_file_and_no_script_are_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        read_state(tmp_path / "nothing.pt")
    with pytest.raises(BadInput, match="no script was released for burgers"):
        import_released(tmp_path / "x.pt", "burgers", "x", Location.parse(str(tmp_path)))
