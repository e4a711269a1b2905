"""A real browser for tests: Debian's Chromium without a window, driven over its own protocol."""

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 90.0


class Tab:
    """One open page."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.number = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to a command of the DevTools protocol."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        self.connection.send(json.dumps(command))
        while True:
            message = json.loads(self.connection.recv(timeout=120))
            if message.get("id") == self.number:
                assert "error" not in message, message["error"]
                return dict(message["result"])

    def look_as(self, width: int, height: int, scheme: str) -> None:
        """Show pages on a screen of this size, in the light or in the dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, address: str) -> None:
        """Go to a page and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 90.0) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.5)
        raise TimeoutError(f"{expression} is not true after {seconds:.0f} s")

    def save_picture(self, file: Path) -> None:
        """Write what the screen shows."""
        taken = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def open_browser(folder: Path) -> Iterator[Tab]:
    """Provide a tab of a browser whose profile lies in a folder; skip where there is none."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("this did not run: there is no Chromium on this machine")
    profile = folder / "profile"
    process = subprocess.Popen(
        [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
        start_new_session=True,
    )
    try:
        with connect(_page_address(profile / "DevToolsActivePort"), max_size=2**28) as connection:
            tab = Tab(connection)
            tab.call("Page.enable")
            yield tab
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _page_address(file: Path) -> str:
    """Return the address of the first tab, once the browser has written where it listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if file.exists() and "\n" in file.read_text():
            port = file.read_text().splitlines()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [each for each in json.load(answer) if each["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
        time.sleep(0.2)
    raise TimeoutError(f"the browser did not listen within {START_SECONDS:.0f} s")
