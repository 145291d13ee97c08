"""Parts that need no Ray: batches as feeds, requests that run together, names that are no paths."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from tenonnx_ray import Predictor, batching
from tenonnx_ray.opening import warm
from tenonnx_ray.repository import place_of

X = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_a_batch_is_fed_and_answered(path: Path, weight: Any) -> None:
    predictor = Predictor(path, columns={"x": "features"}, outputs={"y": "scores"}, keep=["id"])
    made = predictor({"features": X, "id": np.arange(6), "other": np.zeros(6)})
    assert made.keys() == {"id", "scores"}
    np.testing.assert_allclose(made["scores"], X @ weight, rtol=1e-6)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"columns": {"z": "x"}}, r"no input 'z'; it has \['x'\]"),
        ({"outputs": ["z"]}, r"no output 'z'; it has \['y'\]"),
        ({"outputs": "y"}, "expected a list"),
        ({"keep": ["y"]}, r"\['y'\] are made or kept twice"),
    ],
)
def test_names_are_checked_before_there_is_a_batch(path: Path, how: Any, said: str) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match=said):
        Predictor(path, **how)


def test_a_batch_that_does_not_fit_says_why(path: Path) -> None:
    predictor = Predictor(path)
    with pytest.raises(tenonnx.InvalidArgument, match=r"no column 'x'.*\n.*columns="):
        predictor({"y": X})
    with pytest.raises(tenonnx.InvalidArgument, match="different shapes; pad"):
        predictor({"x": np.array([X[0], X[0, :2]], object)})
    with pytest.raises(tenonnx.InvalidArgument, match='batch_format="numpy"'):
        predictor([X])  # type: ignore[arg-type]
    with pytest.raises(tenonnx.InvalidArgument, match="float64"):
        predictor({"x": X.astype(np.float64)})


def test_an_output_without_rows_is_no_column() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 4] x) => (float[] total) { total = ReduceSum <keepdims = 0> (x) }"""
    )
    with pytest.raises(tenonnx.InvalidArgument, match=r"output 'total' has shape.*\n.*outputs="):
        Predictor(model.SerializeToString())({"x": X})


def joined(session: tenonnx.InferenceSession, *requests: Any) -> Any:
    return asyncio.run(batching.answers(session, requests))


def test_requests_run_together_and_come_apart(path: Path, weight: Any) -> None:
    session = tenonnx.InferenceSession(path)
    runs = counted(session)
    parts = joined(session, {"x": X[:1]}, {"x": X[1:4]}, {"x": X[4:]})
    assert runs == [6]
    assert [len(part["y"]) for part in parts] == [1, 3, 2]
    np.testing.assert_allclose(np.concatenate([part["y"] for part in parts]), X @ weight, rtol=1e-6)


def test_one_that_is_wrong_is_wrong_alone(path: Path, weight: Any) -> None:
    session = tenonnx.InferenceSession(path)
    parts = joined(session, {"x": X}, {"x": X[:, :2]}, {"x": X[:, :2]}, {"z": X}, {"x": X})
    for i in (0, 4):
        np.testing.assert_allclose(parts[i]["y"], X @ weight, rtol=1e-6)
    assert all(isinstance(parts[i], tenonnx.TenonnxError) for i in (1, 2, 3))


def test_outputs_that_cannot_be_told_apart_are_of_runs_apart() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 4] x) => (float[] total) { total = ReduceSum <keepdims = 0> (x) }"""
    )
    session = tenonnx.InferenceSession(model)
    parts = joined(session, {"x": X[:1]}, {"x": X[1:]})
    assert [float(part["total"]) for part in parts] == [X[:1].sum(), X[1:].sum()]


def counted(session: tenonnx.InferenceSession) -> list[int]:
    """Have a session note the rows of each run."""
    runs: list[int] = []
    run = session.run_async

    def noted(names: Any, feeds: Any) -> Any:
        runs.append(len(feeds["x"]))
        return run(names, feeds)

    session.run_async = noted  # type: ignore[assignment,method-assign]
    return runs


def test_who_goes_away_stops_the_run() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float x) => (float y) {
            go = Constant <value = bool { 1 }> ()
            y = Loop ("", go, x) <body = b (int64 i, bool on, float a) => (bool still, float b) {
                still = Identity(on)  b = Add(a, a) }> }"""
    )
    session = tenonnx.InferenceSession(model)
    ended = threading.Event()
    start = session.run_async

    def noted(*given: Any) -> Any:
        future = start(*given)
        future.add_done_callback(lambda _: ended.set())
        return future

    session.run_async = noted  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(batching.run(session, {"x": np.float32(1)}), 0.2))
    assert ended.wait(2)


def test_what_zeros_cannot_warm_is_left(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (int64[n] x) => (float[m] y) {
            shape = Constant <value_ints = [-1, 7]> ()
            ones = Cast <to = 1> (x)
            y = Reshape (ones, shape) }"""
    )
    warm(tenonnx.InferenceSession(model), {2})
    assert "not warmed with 2 rows" in caplog.text
    warm(tenonnx.InferenceSession(path), {1, 2})


def test_a_name_leads_to_a_model_of_the_repository(tmp_path: Path) -> None:
    for name in ("a.onnx", "b/model.onnx", "c/2/model.onnx", "c/10/model.onnx", "c/x/model.onnx"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(place_of(tmp_path, name).relative_to(tmp_path)) for name in "abc"]
    assert found == ["a.onnx", "b/model.onnx", "c/10/model.onnx"]


@pytest.mark.parametrize(
    "name", ["", "..", "../a", "/etc/passwd", "a/b", "*", "[a]", ".hidden", "a\0", "x" * 300, "out"]
)
def test_no_name_leads_out_of_it(tmp_path: Path, name: str) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (tmp_path / "a.onnx").touch()
    (repository / "out.onnx").symlink_to(tmp_path / "a.onnx")
    with pytest.raises(tenonnx.NoSuchFile, match="has no model"):
        place_of(repository, name)


def test_without_ray_it_is_said_what_to_install() -> None:
    code = (
        "import sys; sys.modules['ray'] = sys.modules['ray.serve'] = None\n"
        "import tenonnx_ray\n"
        "try: tenonnx_ray.OnnxDeployment\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    # An editable install misses a package that was added after it.
    places = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | places)
    assert "pip install 'tenonnx-ray[ray]'" in done.stdout, done.stderr
