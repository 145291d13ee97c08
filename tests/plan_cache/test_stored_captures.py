"""Captures of a first run, stored for later processes: the same answers, and never a wrong one."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from tenonnx.plan_cache import captures, files
from tenonnx_cpu.capture import recent
from tenonnx_cpu.jit import runtime

NDArray = np.ndarray[Any, Any]

RNG = np.random.default_rng(4)
X = RNG.standard_normal((2, 8)).astype(np.float32)

LAYERS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, z) {
    w = Constant <value_floats=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> ()
    a = Add(x, w)  h = Relu(a)  y = Softmax(h)  z = Transpose(a)
}"""
PARTED = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, float[m, 8] z) {
    a = Exp(x)  b = Neg(a)  u = Unique <axis=0> (b)  c = Tanh(u)  z = Mul(c, c)  y = Sqrt(a)
}"""
TABLE = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <float[5, 8] t> {
    i = Constant <value_int=3> ()  g = Gather(t, i)  y = Mul(g, x)
}"""
SCALED = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>
g (float[n, 8] x) => (float[n, 8] y) {
    s = ai.onnx.ml.Scaler <offset=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        scale=[8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]> (x)
    y = Tanh(s)
}"""
DENSE = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <float[8, 8] a, float[8] b, float[8, 8] c, float[8] d> {
    e = Gemm(x, a, b)  f = Relu(e)  y = Gemm(f, c, d)
}"""
EXPANDED = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, float[n, 8] e) {
    s = Shape(x)  c = Constant <value_floats=[2.0]> ()  e = Expand(c, s)  u = Unique (x)
    m = ReduceMax <keepdims=0> (u)  v = Mul(e, m)  y = Tanh(v)
}"""
"""A step returns an array that shapes determine, and another span reads it."""
MODELS = {
    "expanded": EXPANDED,
    "scaled": SCALED,
    "layers": LAYERS,
    "parted": PARTED,
    "table": TABLE,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path, LAYERS)


def saved(folder: Path, text: str) -> Path:
    """Write a model."""
    model = onnx.parser.parse_model(text)
    for info in model.graph.value_info:
        dims = [each.dim_value for each in info.type.tensor_type.shape.dim]
        made = RNG.standard_normal(dims).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(made, info.name))
    del model.graph.value_info[:]
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def opened(path: Path) -> tenonnx.InferenceSession:
    """Open a model on the CPU."""
    return tenonnx.InferenceSession(path, providers=["cpu"])


def answers(session: tenonnx.InferenceSession, x: NDArray = X) -> list[Any]:
    """Run a model."""
    return session.run(None, {"x": x})


def held(session: tenonnx.InferenceSession) -> int:
    """Return how many captures a session's plan has."""
    namespace = session._plan._code.namespace
    return sum(len(own) // 2 - 1 for _, own in captures._cells(namespace))


def file_of_captures() -> Path:
    """Return the file of the only plan's captures."""
    (plan,) = files.files()
    return Path(captures.path_of(plan))


def assert_same(some: list[Any], others: list[Any]) -> None:
    """Compare outputs, bit by bit."""
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_addresses_are_kept_for_nobody(tmp_path: Path) -> None:
    """Dense layers in a row have a table of where their weights lie."""
    path = saved(tmp_path, DENSE)
    wanted = answers(first := opened(path))
    assert held(first) == 1
    for _ in range(2):
        again = opened(path)
        assert held(again) == 0
        assert_same(answers(again), wanted)
    assert not file_of_captures().exists()


@pytest.mark.parametrize("name", MODELS)
def test_the_same_answers(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, MODELS[name])
    first = opened(path)
    wanted = answers(first)
    again = opened(path)
    assert held(again) == held(first) > 0
    for x in (X, X[:1], np.tile(X, (3, 1)), X, X[::-1], X[:1], X):
        assert_same(answers(again, x), answers(first, x))
    assert_same(answers(again), wanted)


def test_no_step_is_made_where_a_capture_fits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = answers(first := opened(path))
    again = opened(path)
    with monkeypatch.context() as patch:
        patch.setattr("tenonnx.plan_cache.unpickling._load", None)
        assert_same(answers(again), wanted)
    assert_same(answers(again, X[:1]), answers(first, X[:1]))


def test_the_first_run_of_many_steps_is_captured_for_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a session whose plan nobody keeps, later runs capture it."""
    monkeypatch.setattr(recent, "MAX_STEPS", 1)
    alone = tenonnx.InferenceSession(path.read_bytes(), providers=["cpu"])
    wanted = answers(alone)
    assert held(alone) == 0
    assert_same(answers(opened(path)), wanted)
    again = opened(path)
    assert held(again) == 1
    assert_same(answers(again), wanted)


def test_a_plan_that_was_opened_before_it_ran(path: Path) -> None:
    opened(path)
    second = opened(path)
    assert held(second) == 0
    assert not file_of_captures().exists()
    answers(second)
    assert held(opened(path)) > 0


def test_large_results_are_captured_for_later_processes(tmp_path: Path) -> None:
    """Pooled memory is made by a function of its own, which their captures name."""
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (float[1024, 1024] x) => (float[1024, 1024] y) { a = Exp (x)  y = Softmax (a) }"""
    onnx.save(onnx.parser.parse_model(text), path := tmp_path / "large.onnx")
    x = np.ones((1024, 1024), np.float32)
    (wanted,) = opened(path).run(None, {"x": x})
    again = opened(path)
    assert held(again) > 0
    np.testing.assert_array_equal(again.run(None, {"x": x})[0], wanted)


def test_captures_are_of_one_plan(path: Path) -> None:
    answers(opened(path))
    (plan,) = files.files()
    content = plan.read_bytes()
    plan.unlink()
    plan.write_bytes(content)  # as another process would, whose plan may be another one
    again = opened(path)
    assert list(again.load_times) == ["open"]
    assert held(again) == 0
    answers(again)
    assert held(opened(path)) > 0


@pytest.mark.parametrize("place", [0, 8, 70, 200, -1])
def test_damaged_files_are_made_again(path: Path, place: int) -> None:
    wanted = answers(opened(path))
    kept = file_of_captures()
    content = bytearray(kept.read_bytes())
    content[place] ^= 1
    for broken in (content, *(content[:size] for size in (0, 4, 60, len(content) // 2))):
        kept.write_bytes(broken)
        assert held(opened(path)) == 0
    assert_same(answers(opened(path)), wanted)
    assert held(opened(path)) > 0


class Evil:
    """Would run a command when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_files_name_no_other_code(path: Path, tmp_path: Path) -> None:
    answers(opened(path))
    kept = file_of_captures()
    found = files.read(kept)
    checks, parts = bytes(found.checks), bytes(found.parts)
    evil = pickle.dumps(Evil(tmp_path / "evil"))
    for content in ((checks, pickle.dumps(([], "")) + evil), (checks, evil), (evil, parts)):
        kept.write_bytes(b"".join(files.pieces(*content, [memoryview(b"")])))
        assert held(opened(path)) == 0
        assert not (tmp_path / "evil").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_files_that_others_may_write_are_not_used(path: Path) -> None:
    answers(opened(path))
    file_of_captures().chmod(0o666)
    assert held(opened(path)) == 0


def test_a_kernel_that_is_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = answers(opened(path))
    with monkeypatch.context() as patch:
        patch.setattr(runtime.KERNELS["norm.norms.softmax"], "run", None)
        again = opened(path)
    assert held(again) == 0
    assert_same(answers(again), wanted)


def test_a_session_that_never_ran_is_freed(path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            gone = weakref.ref(session := opened(path))
            del session
            assert gone() is None
    finally:
        gc.enable()
