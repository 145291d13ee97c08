"""A real browser without a screen, driven by WebDriver (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Browser:
    """A window of a browser."""

    def __init__(self, base: str) -> None:
        self._base = base
        chosen = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": ARGUMENTS},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        found = self._call("POST", "", {"capabilities": {"alwaysMatch": chosen}})
        self._base = f"{base}/{found['sessionId']}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, url: str, width: int, height: int = 900) -> None:
        """Open a page in a window whose content has a width, as a telephone has."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}
        self._call("POST", "/goog/cdp/execute", command)
        self._call("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """Return what a function's body in JavaScript returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def screenshot(self, path: Path) -> None:
        """Write what is to be seen."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def log(self) -> list[dict[str, Any]]:
        """Return the messages of the console: errors, and what the page's policy refused."""
        found: list[dict[str, Any]] = self._call("POST", "/se/log", {"type": "browser"})
        return found

    def close(self) -> None:
        """Close the window."""
        self._call("DELETE", "")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser until the block ends."""
    assert DRIVER is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        window = Browser(f"http://127.0.0.1:{port}/session")
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(20)
