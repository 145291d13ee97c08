"""Sessions in other threads, coroutines and processes."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import pickle
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.ones((3, 64), np.float32)


def product() -> onnx.ModelProto:
    return model(
        [node("MatMul", "x w", "y")], [value("x", FLOAT, ["n", 3])], [value("y")], {"w": W}
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    onnx.save(product(), file, save_as_external_data=True, size_threshold=0, location="data")
    return file


def endless() -> Any:
    body = graph(
        [node("Identity", "on", "still"), node("Add", "a one", "b")],
        [value("i", INT64, []), value("on", BOOL, []), value("a", FLOAT, [])],
        [value("still", BOOL, []), value("b", FLOAT, [])],
    )
    weights = {"go": np.array(True), "one": np.array(1, np.float32)}
    loop = node("Loop", "_ go x", "y", body=body)
    return model([loop], [value("x", FLOAT, [])], [value("y", FLOAT, [])], weights)


def test_a_callback_gets_outputs_or_what_went_wrong() -> None:
    session = tenonnx.InferenceSession(product())
    got: list[Any] = []
    done = threading.Event()

    def callback(outputs: Any, user_data: Any, error: str) -> None:
        got.append((outputs, user_data, error, threading.current_thread()))
        done.set()

    session.run_async(None, {"x": X}, callback, "mine")
    assert done.wait(60)
    outputs, user_data, error, thread = got.pop()
    np.testing.assert_array_equal(outputs[0], X @ W)
    assert (user_data, error) == ("mine", "")
    assert thread is not threading.current_thread()
    done.clear()
    session.run_async(None, {"x": X[0]}, callback, "mine")
    assert done.wait(60)
    outputs, user_data, error, _ = got.pop()
    assert outputs == []
    assert "input 'x'" in error


def test_coroutines_await_runs() -> None:
    session = tenonnx.InferenceSession(product())

    async def several() -> list[Any]:
        return await asyncio.gather(*(_run(session, i) for i in range(8)))

    for i, (y,) in enumerate(asyncio.run(several())):
        np.testing.assert_array_equal(y, (X + i) @ W)


async def _run(session: tenonnx.InferenceSession, i: int) -> Any:
    return await session.run_async(None, {"x": X + i})


def test_errors_reach_the_coroutine() -> None:
    session = tenonnx.InferenceSession(product())

    async def wrong() -> Any:
        return await session.run_async(None, {})

    with pytest.raises(tenonnx.InvalidArgument, match="'x' is missing"):
        asyncio.run(wrong())


def test_a_timeout_stops_the_run() -> None:
    session = tenonnx.InferenceSession(endless())

    async def impatient() -> Any:
        future = session.run_async(None, {"x": np.float32(0)})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(_awaited(future)), 0.1)
        assert future.cancel()
        return future

    future = asyncio.run(impatient())
    start = time.process_time()  # the run computes until it is stopped
    with pytest.raises(tenonnx.Fail, match="terminate"):
        future.result(60)
    assert time.process_time() - start < 0.5


async def _awaited(future: Any) -> Any:
    return await future


def test_a_session_pickles_as_a_recipe(path: Path) -> None:
    session = tenonnx.InferenceSession(path, providers=["cpu"], disabled_optimizers=["x"])
    packed = pickle.dumps(session)
    assert len(packed) < 2000
    back = pickle.loads(packed)
    np.testing.assert_array_equal(back.run(None, {"x": X})[0], X @ W)
    assert {w.storage for w in back.weights} == {w.storage for w in session.weights}


def test_a_session_of_bytes_pickles_them() -> None:
    back = pickle.loads(pickle.dumps(tenonnx.InferenceSession(product().SerializeToString())))
    np.testing.assert_array_equal(back.run(None, {"x": X})[0], X @ W)


def test_few_bytes_travel() -> None:
    heavy = product()
    heavy.doc_string = "x" * (16 << 20)
    session = tenonnx.InferenceSession(heavy.SerializeToString())
    with pytest.raises(TypeError, match=r"16 MiB in memory cannot be pickled.*from a path"):
        pickle.dumps(session)


def test_relative_paths_lead_where_they_led(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session goes on with its file, and so does its pickle, where the process went elsewhere."""
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(path.parent)
    session = tenonnx.InferenceSession(path.name)
    options = tenonnx.SessionOptions(allowed_roots=["."])
    of_bytes = tenonnx.InferenceSession(path.read_bytes(), options)
    beside = pickle.dumps(of_bytes)
    monkeypatch.chdir(elsewhere)
    session.set_providers(["cpu"])
    for back in (session, pickle.loads(pickle.dumps(session)), pickle.loads(beside)):
        np.testing.assert_array_equal(back.run(None, {"x": X})[0], X @ W)
    assert list(options.allowed_roots) == ["."]


@pytest.mark.parametrize("missing", ["model.onnx", "data"])
def test_a_recipe_says_what_is_not_there(path: Path, missing: str) -> None:
    packed = pickle.dumps(tenonnx.InferenceSession(path))
    (path.parent / missing).unlink()
    with pytest.raises(tenonnx.TenonnxError, match=missing) as caught:
        pickle.loads(packed)
    assert f"put the model and its data at {path}" in str(caught.value)


def test_unpickling_calls_nothing_but_what_builds_a_session(path: Path) -> None:
    packed = pickle.dumps(tenonnx.InferenceSession(path, providers=["cpu"]))

    class Names(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.add(f"{module}.{name}")
            return super().find_class(module, name)

    found = set[str]()
    Names(io.BytesIO(packed)).load()
    if sys.version_info < (3, 11, 4):
        found.discard("builtins.getattr")  # by which these pickle any enumeration's members
    assert found <= {
        "functools.partial",
        "tenonnx.interface.enums.ExecutionMode",
        "tenonnx.interface.enums.ExecutionOrder",
        "tenonnx.interface.enums.GraphOptimizationLevel",
        "tenonnx.interface.session_pickling.rebuilt",
        "tenonnx.operators.OperatorTable",
        "tenonnx.options.SessionOptions",
        "tenonnx.session.InferenceSession",
    }


def test_errors_pickle_with_their_hints() -> None:
    for kind in [tenonnx.NoSuchFile, tenonnx.InvalidArgument]:
        back = pickle.loads(pickle.dumps(kind("wrong", hint="mend it")))
        assert type(back) is kind
        assert str(back) == "wrong\nHint: mend it"


class Pickable(tenonnx.InferenceSession):
    """As clients that could not pickle onnxruntime's sessions helped themselves."""

    def __init__(self, model_path: Any, **options: Any) -> None:
        super().__init__(model_path, **options)
        self.model_path = model_path

    def __getstate__(self) -> Any:
        return {"model_path": self.model_path}

    def __setstate__(self, values: Any) -> None:
        Pickable.__init__(self, values["model_path"])


def test_a_subclass_pickles_as_itself(path: Path) -> None:
    back = pickle.loads(pickle.dumps(Pickable(path, providers=["cpu"])))
    assert type(back) is Pickable
    np.testing.assert_array_equal(back.run(None, {"x": X})[0], X @ W)


def test_what_belongs_to_this_process_is_refused(path: Path) -> None:
    for source in (ir.from_proto(product()), product()):
        with pytest.raises(TypeError, match=r"Model.* cannot be pickled; build it"):
            pickle.dumps(tenonnx.InferenceSession(source))
    for options in (
        tenonnx.SessionOptions(weights=tenonnx.WeightRegistry()),
        tenonnx.SessionOptions(plugins=tenonnx.PluginSet()),
    ):
        with pytest.raises(TypeError, match="belong to this process"):
            pickle.dumps(tenonnx.InferenceSession(path, options))
    provider = tenonnx.default_plugins().provider("cpu")()
    with pytest.raises(TypeError, match="names and options"):
        pickle.dumps(tenonnx.InferenceSession(path, providers=[provider]))


def test_options_pickle() -> None:
    options = tenonnx.SessionOptions(logid="x")
    options.add_session_config_entry("session.disable_prepacking", "1")
    back = pickle.loads(pickle.dumps(options))
    assert back == options
    assert back.get_session_config_entry("session.disable_prepacking") == "1"


def work(session: tenonnx.InferenceSession, x: Any) -> Any:
    (y,) = session.run(None, {"x": x})
    return os.getpid(), y


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_get_sessions(path: Path, method: str) -> None:
    session = tenonnx.InferenceSession(path)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        for i, (pid, y) in enumerate(pool.map(work, [session] * 4, [X + i for i in range(4)])):
            assert pid != os.getpid()
            np.testing.assert_array_equal(y, (X + i) @ W)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_runs_its_parents_session(path: Path) -> None:
    session = tenonnx.InferenceSession(path)
    session.run_async(None, {"x": X}).result(5)  # the parent has threads now
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        y = session.run(None, {"x": X})[0]
        z = session.run_async(None, {"x": X}).result(10)[0]
        os.write(writer, b"ok" if (y == X @ W).all() and (z == y).all() else b"no")
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 2) == b"ok"
    os.waitpid(child, 0)
