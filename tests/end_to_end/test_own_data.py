"""The tutorial of data of one's own, run as it stands, on data that nobody here made."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
OUTSIDE = REPOSITORY.parent / "shared" / "data" / "outside"
FILES = ("darcy_train_16.pt", "darcy_test_16.pt", "darcy_test_32.pt")
FITTED = ("ridge", "pod_rbf")
"""After the few steps of preset smoke one of them is the champion, and tied to its grid."""


def commands() -> list[list[str]]:
    text = (REPOSITORY / "OWN_DATA.md").read_text()
    blocks = re.findall(r"^```\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(
    not all((OUTSIDE / name).exists() for name in FILES),
    reason="neuraloperator's Darcy files are not in ../shared/data/outside",
)
def test_the_tutorial_leads_from_files_to_a_served_model(tmp_path: Path) -> None:
    for name in FILES:
        shutil.copy(OUTSIDE / name, tmp_path)
    environment = {**os.environ, "LSM_STORE": str(tmp_path / ".lsm"), "MLFLOW_TRACKING_URI": ""}
    environment["PREFECT_API_URL"] = "http://127.0.0.1:1/api"  # none answers: one is started
    *before, serve = commands()
    assert [words[:2] for words in (before[-1], serve)] == [["lsm", "predict"], ["lsm", "serve"]]
    printed = {}
    for words in before:
        small = ["smoke" if word == "quick" else word for word in words[1:] if word not in FITTED]
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli", *small],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        printed[words[1]] = done.stdout
    assert "mean relative L2 error" in printed["predict"]
    assert (tmp_path / "at_32.svg").read_text().startswith("<svg")
    server = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *serve[1:]], cwd=tmp_path, env=environment
    )
    try:
        answer = _asked(f"http://127.0.0.1:{serve[-1]}/invocations", server)
        assert len(answer["predictions"]) > 0
    finally:
        server.terminate()
        server.wait()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(serve[-1])))


def _asked(address: str, server: "subprocess.Popen[bytes]") -> dict[str, object]:
    """Return the answer to one medium, as soon as the server is there."""
    body = json.dumps({"inputs": {"x": [[[0.0] * 16] * 16]}}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    while True:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(request) as response:
                return dict(json.loads(response.read()))
        except ConnectionError:
            time.sleep(1)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionError):
                raise
            time.sleep(1)
