"""The recipe for applications of one's own is followed: uvicorn's workers, gunicorn's forks."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from held import LARGE, descendants, settled, unshared_mib
from programs import free_port, posted, running
from sources import ROOT

pytest.importorskip("fastapi", reason="FastAPI is not installed; tox -e kserve")
pytest.importorskip("gunicorn", reason="gunicorn is not installed; tox -e kserve")

RECIPE = ROOT / "docs/recipes/serve-in-your-own-application.md"
EMPTY = {
    "empty_app.py": """
import numpy
from fastapi import FastAPI
app = FastAPI()
@app.post("/score")
async def score(given: dict) -> list:
    return []
""",
    "empty_preloaded.py": """
import numpy
def app(environ, start_response):
    start_response("200 OK", [])
    return [b""]
""",
}
X = np.arange(24, dtype=np.float32).reshape(6, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = re.findall(r"^```python file=(\S+)\n(.*?)^```$", RECIPE.read_text(), re.M | re.S)
    assert [name for name, _ in files] == ["app.py", "preloaded.py"]
    for name, code in (*files, *EMPTY.items()):
        (tmp_path / name).write_text(code)
    return tmp_path


def uvicorn(module: str, port: int) -> list[str]:
    return ["-m", "uvicorn", "--workers", "2", "--port", str(port), f"{module}:app"]


def gunicorn(module: str, port: int, *how: str) -> list[str]:
    where = ["--bind", f"127.0.0.1:{port}", "--workers", "2"]
    return ["-m", "gunicorn", *where, *how, f"{module}:app"]


def sent(port: int, rows: Any) -> np.ndarray[Any, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", rows.tobytes())
    with urllib.request.urlopen(request, timeout=30) as answer:
        return np.frombuffer(answer.read(), np.float32)


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_fastapi(
    folder: Path, path: Path, weight: Any, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", str(path))
    port = free_port()
    worker = ("--preload", "--worker-class", "uvicorn_worker.UvicornWorker")
    command = uvicorn("app", port) if server == "uvicorn" else gunicorn("app", port, *worker)
    with running(command, folder, f"http://127.0.0.1:{port}/docs"):
        status, scores = posted(f"http://127.0.0.1:{port}/score", {"rows": X.tolist()})
        assert status == 200
        np.testing.assert_allclose(scores, X @ weight, rtol=1e-5)
        status, said = posted(f"http://127.0.0.1:{port}/score", {"rows": [[1, 2]]})
        assert status == 422
        assert b"input 'x'" in said


def test_preloaded(folder: Path, path: Path, weight: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", str(path))
    port = free_port()
    with running(gunicorn("preloaded", port, "--preload"), folder, f"http://127.0.0.1:{port}/"):
        np.testing.assert_allclose(sent(port, X), (X @ weight).ravel(), rtol=1e-5)
        assert posted(f"http://127.0.0.1:{port}/", {"a": 1})[0] == 400


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_a_worker_holds_little_of_a_large_model(
    folder: Path, large: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", str(large))
    held = []
    for kind in ("empty_", ""):
        port = free_port()
        if server == "uvicorn":
            command, ready = uvicorn(f"{kind}app", port), "docs"
        else:
            command, ready = gunicorn(f"{kind}preloaded", port, "--preload"), ""
        with running(command, folder, f"http://127.0.0.1:{port}/{ready}") as pid:
            for _ in range(16):
                if server == "uvicorn":
                    rows = {"rows": [[1.0] * LARGE]}
                    assert posted(f"http://127.0.0.1:{port}/score", rows)[0] == 200
                else:
                    sent(port, np.ones((1, LARGE), np.float32))
            settled(pid, 2)
            held.append([unshared_mib(worker) for worker in descendants(pid)])
    print(f"{server}: empty {held[0]} MiB, with the model {held[1]}")
    assert max(held[1]) - max(held[0]) <= 15
