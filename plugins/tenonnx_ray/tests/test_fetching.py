"""Models of object storage: fetched once, whole or not at all, each version for itself."""

from __future__ import annotations

import http.server
import multiprocessing
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed; tox -e ray")

import tenonnx
from tenonnx_ray import fetched, fetching

X = np.ones((2, 4), np.float32)


@pytest.fixture
def store(path: Path) -> Path:
    """A folder with a model and its data, as object storage has one."""
    store = path.parent / "store"
    store.mkdir()
    for name in ("model.onnx", "data"):
        shutil.copy(path.parent / name, store)
    return store


def test_a_folder_is_fetched_once_and_mapped(
    store: Path, weight: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Path] = []
    fetch = fetching._fetch
    monkeypatch.setattr(fetching, "_fetch", lambda *a: copied.append(a[-1]) or fetch(*a))
    places = {fetched(f"file://{store}", tmp_path / "node") for _ in range(3)}
    (place,) = places
    assert len(copied) == 1
    session = tenonnx.InferenceSession(place)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ weight, rtol=1e-6)
    assert not list((tmp_path / "node").glob("*.partial"))


def test_fsspec_knows_other_stores(weight: Any, store: Path, tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for name in ("model.onnx", "data"):
        memory.pipe(f"/bucket/m/{name}", (store / name).read_bytes())
    (place,) = {fetched("memory://bucket/m", tmp_path / "node") for _ in range(2)}
    found = tenonnx.InferenceSession(place).run(None, {"x": X})[0]
    np.testing.assert_allclose(found, X @ weight, rtol=1e-6)
    memory.pipe("/bucket/m/data", (store / "data").read_bytes())
    assert fetched("memory://bucket/m", tmp_path / "node") != place
    with pytest.raises(tenonnx.NoSuchFile, match="there is no file at"):
        fetched("memory://bucket/none", tmp_path)
    memory.rm("/bucket", recursive=True)


def test_another_version_is_another_file(store: Path, tmp_path: Path) -> None:
    first = fetched(f"file://{store}", tmp_path / "node")
    os.utime(store / "data", ns=(1, 1))
    second = fetched(f"file://{store}", tmp_path / "node")
    assert first != second
    assert first.exists()


def work(address: str, folder: Path) -> int:
    return fetched(address, folder).stat().st_ino


def test_processes_wait_for_the_one_that_fetches(store: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        arguments = [(f"file://{store}", tmp_path / "node")] * 6
        assert len(set(pool.starmap(work, arguments))) == 1


def test_what_is_not_whole_does_not_appear(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it failed or was killed: the next one starts anew."""
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_: None)
    with pytest.raises(tenonnx.Fail, match="changed while it was fetched"):
        fetched(f"file://{store}", tmp_path / "node")
    monkeypatch.undo()
    place = fetched(f"file://{store}", tmp_path / "node")
    left = place.parent.with_suffix(".partial")
    place.parent.rename(left)
    (left / "data").write_bytes(b"half")
    assert fetched(f"file://{store}", tmp_path / "node") == place
    assert (place.parent / "data").stat().st_size == (store / "data").stat().st_size


def test_a_full_disk_is_said(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(tenonnx.Fail, match="has 10 bytes free; the model needs"):
        fetched(f"file://{store}", tmp_path / "node")


def test_addresses_that_lead_to_no_one_model(store: Path, tmp_path: Path) -> None:
    with pytest.raises(tenonnx.NoSuchFile, match="there is no file at"):
        fetched(f"file://{store}/none", tmp_path)
    with pytest.raises(tenonnx.InvalidArgument, match="has no scheme that is known"):
        fetched("nowhere://a/b", tmp_path)
    shutil.copy(store / "model.onnx", store / "other.onnx")
    with pytest.raises(
        tenonnx.InvalidArgument, match=r"expected one model at.*model\.onnx.*other\.onnx"
    ):
        fetched(f"file://{store}", tmp_path)
    (store / "model.onnx").unlink()
    (store / "other.onnx").unlink()
    with pytest.raises(tenonnx.NoSuchFile, match=r"there is no model at.*data"):
        fetched(f"file://{store}", tmp_path)


@pytest.mark.parametrize("name", ["/x/../../etc/passwd", "/x/"])
def test_a_listing_leads_nowhere_else(name: str) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="is not inside"):
        fetching._name(name, "/x")


class Store(http.server.SimpleHTTPRequestHandler):
    """A server of files that tells how often each was asked for."""

    folder: ClassVar[str]
    asked: ClassVar[list[str]]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, directory=self.folder)

    def log_request(self, *_: object) -> None:
        self.asked.append(self.path)


@pytest.fixture
def web(store: Path) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what was asked for."""
    handler = type("Here", (Store,), {"folder": str(store), "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", handler.asked
        server.shutdown()


def test_a_model_of_the_web_is_fetched_once_a_node(
    web: tuple[str, list[str]], store: Path, weight: Any, tmp_path: Path
) -> None:
    address, asked = web
    whole = onnx.load(store / "model.onnx")
    onnx.save(whole, store / "whole.onnx")
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        given = [(f"{address}/whole.onnx?signature={n}", tmp_path / "node") for n in range(6)]
        assert len(set(pool.starmap(work, given))) == 1
    # Each looks what there is; one fetches it.
    assert len(asked) == 7
    place = fetched(f"{address}/whole.onnx", tmp_path / "node")
    found = tenonnx.InferenceSession(place).run(None, {"x": X})[0]
    np.testing.assert_allclose(found, X @ weight, rtol=1e-6)
    os.utime(store / "whole.onnx", ns=(1, 1))
    assert fetched(f"{address}/whole.onnx", tmp_path / "node") != place


def test_what_a_server_of_the_web_has_not_is_told(
    web: tuple[str, list[str]], tmp_path: Path
) -> None:
    with pytest.raises(tenonnx.NoSuchFile, match="answers 404"):
        fetched(f"{web[0]}/none.onnx?signature=secret", tmp_path)
    with pytest.raises(tenonnx.NoSuchFile, match="there is no model at"):
        fetched(f"{web[0]}/data", tmp_path)
    with pytest.raises(tenonnx.Fail, match="does not answer"):
        fetched("http://127.0.0.1:9/none.onnx", tmp_path)
