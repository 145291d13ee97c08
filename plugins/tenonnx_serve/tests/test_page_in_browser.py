"""The page in a real browser: nothing runs that a name says, and it fits windows of any width."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from browser import CHROMIUM, DRIVER, Browser, browser
from looked_at import HOSTILE, MODELS, collected
from tenonnx_serve.page import HEADERS, page

pytestmark = pytest.mark.skipif(
    DRIVER is None or CHROMIUM is None,
    reason="no browser: apt-get install chromium chromium-driver",
)

WIDTHS = (360, 820, 930, 1440)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the page."""

    def do_GET(self) -> None:
        body = page(collected(), MODELS, "0.1.0") if self.path == "/" else b""
        self.send_response(200 if body else 404)
        for name, value in HEADERS:
            self.send_header(name.decode(), value.decode())
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits(window: Browser, url: str, width: int) -> None:
    window.open(url, width)
    assert window.run("return document.documentElement.scrollWidth") <= width
    names = window.run(
        "return [...document.querySelectorAll('td:first-child')].map(e => e.textContent)"
    )
    assert HOSTILE in names
    # The style is the page's own, which its policy lets through.
    assert window.run("return getComputedStyle(document.body).maxWidth") == "1200px"
    hidden = """return [...document.querySelectorAll('td span')].filter(
        e => e.getBoundingClientRect().right > innerWidth).length"""
    assert window.run(hidden) == 0
    narrow = """return [...document.querySelectorAll('tbody td:first-child')].filter(
        e => e.getBoundingClientRect().width < 90).length"""
    assert window.run(narrow) == 0
    if folder := os.environ.get("TENONNX_SCREENSHOTS"):
        with contextlib.suppress(FileExistsError):
            Path(folder).mkdir()
        window.screenshot(Path(folder, f"page-{width}.png"))


def test_nothing_of_a_name_is_run(window: Browser, url: str) -> None:
    window.open(url, 1000)
    assert window.run("return document.scripts.length") == 0
    messages = [entry for entry in window.log() if "favicon" not in entry["message"]]
    assert messages == []
