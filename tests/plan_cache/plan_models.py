"""Models of which plans are kept, and what tests do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tenonnx

NDArray = np.ndarray[Any, Any]

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 8)).astype(np.float32)
LAYERS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <float[8, 8] w, float[8] b> {
    h = MatMul(x, w)  i = Add(h, b)  j = Relu(i)  k = MatMul(j, w)  l = Tanh(k)  m = Exp(l)
    y = Softmax(m)
}"""
BRANCHES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <float[8, 8] w> {
    s = ReduceSum <keepdims=0> (x)  zero = Constant <value=float {0.0}> ()  c = Greater(s, zero)
    y = If (c) <then_branch = a () => (float[n, 8] p) { p = MatMul(x, w) },
                else_branch = b () => (float[n, 8] q) { q = Neg(x) }>
}"""
LOOPS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, float[m, n, 8] z) <float[8, 8] w> {
    trips = Constant <value=int64 {3}> ()  yes = Constant <value=bool {1}> ()
    y, z = Loop (trips, yes, x) <body = b (int64 i, bool go, float[n, 8] v)
        => (bool on, float[n, 8] o, float[n, 8] p) {
        on = Identity(go)  t = MatMul(v, w)  o = Tanh(t)  p = Abs(o) }>
}"""
SCAN = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[8] y, float[n, 8] z) {
    zero = Constant <value_floats=[0.0]> ()  eight = Constant <value_ints=[8]> ()
    start = Expand(zero, eight)
    y, z = Scan <num_scan_inputs=1, body = b (float[8] a, float[8] r) => (float[8] o, float[8] p) {
        o = Add(a, r)  p = Mul(o, r) }> (start, x)
}"""
WORDS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (string[n, 8] y) {
    t = Constant <value_strings=["a", "b"]> ()  i = Constant <value_int=1> ()
    s = Gather(t, i)  w = Cast <to=8> (x)  y = StringConcat(w, s)
}"""
SEQUENCES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[m, 8] y) {
    n = Neg(x)  s = SequenceConstruct(x, n)  e = Exp(x)  t = SequenceInsert(s, e)
    y = ConcatFromSequence <axis=0> (t)
}"""
SHAPES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[m] y) {
    s = Shape(x)  p = ReduceProd <keepdims=1> (s)  f = Reshape(x, p)  y = Sqrt(f)
}"""
OVERRIDABLE = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x, float[8] b) => (float[n, 8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> {
    h = Add(x, b)  y = Relu(h)
}"""
OUTPUTS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] x, float[8, 8] w, y) <float[8, 8] w> {
    y, z = Split <num_outputs=2, axis=1> (x)
}"""
LAYER = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 1, 1, 4] y) <float[1, 16, 8] w, float[1, 16, 4] r> {
    a = Constant <value_ints=[1]> ()  u = Unsqueeze(x, a)
    y = LSTM <hidden_size=4> (u, w, r)
}"""
PICTURES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (y) <float[4, 1, 3, 3] w, float[4] b> {
    s = Constant <value_ints=[1, 1, 4, 4]> ()  i = Reshape(x, s)
    c = Conv <pads=[1, 1, 1, 1]> (i, w, b)  r = Relu(c)  p = GlobalAveragePool(r)  y = Flatten(p)
}"""
INTEGERS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <int8[8, 8] w> {
    s = Constant <value=float {0.1}> ()  z = Constant <value=uint8 {128}> ()
    q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s)
    y = MatMul(a, b)
}"""

MODELS = {
    "layers": LAYERS, "branches": BRANCHES, "loops": LOOPS, "scan": SCAN, "words": WORDS,
    "sequences": SEQUENCES, "shapes": SHAPES, "overridable": OVERRIDABLE, "outputs": OUTPUTS,
    "layer": LAYER, "pictures": PICTURES, "integers": INTEGERS,
}  # fmt: skip


def model_of(text: str, *, seed: int = 1) -> onnx.ModelProto:
    """Return a model whose weights have numbers in them."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for info in model.graph.value_info:
        kind = info.type.tensor_type
        dims = [each.dim_value for each in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made = (rng.standard_normal(dims) * 3).astype(dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(made, info.name))
    del model.graph.value_info[:]
    return model


def saved(path: Path, text: str = LAYERS, **how: Any) -> Path:
    """Write a model."""
    onnx.save(model_of(text), path, **how)
    return path


def opened(path: Path, **how: Any) -> tenonnx.InferenceSession:
    """Open a model on the CPU."""
    return tenonnx.InferenceSession(path, **{"providers": ["cpu"]} | how)


def is_kept(session: tenonnx.InferenceSession) -> bool:
    """Return whether a session opened what another one kept."""
    return list(session.load_times) == ["open"]


def answers(session: tenonnx.InferenceSession, x: NDArray = X) -> list[Any]:
    """Run a model."""
    return session.run(None, {"x": x})


def assert_same(some: list[Any], others: list[Any]) -> None:
    """Compare outputs, bit by bit."""
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, strict=True)


def replaced(path: Path, text: str) -> None:
    """Rename another model to a model's name."""
    other = saved(path.with_suffix(".other"), text)
    other.replace(path)


def options(**named: Any) -> dict[str, Any]:
    """Return session options."""
    made = tenonnx.SessionOptions()
    for name, value in named.items():
        setattr(made, name, value)
    return {"sess_options": made}
