"""Models of several nodes that a compiling provider takes as one group, in part or whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tenonnx.testing.models import build

# Features of every row: small, so that a wrong layout or order shows at once.
WIDTH = 8


def dense() -> onnx.ModelProto:
    """Return three layers, of which the middle one's result is an output, too."""
    body = """
        a = MatMul(x, w1) b = Add(a, b1) c = Relu(b)
        d = MatMul(c, w2) e = Add(d, b2) z = Relu(e)
        f = MatMul(z, w1) y = Sub(f, b2)
    """
    return _built(body, f"float[n, {WIDTH}] y, float[n, {WIDTH}] z")


def residual() -> onnx.ModelProto:
    """Return two residual blocks around an operator that few devices have."""
    body = """
        a = MatMul(x, w1) b = Relu(a) c = MatMul(b, w2) d = Add(c, x)
        m = Mod <fmod = 1> (d, b1)
        e = MatMul(m, w1) f = Relu(e) g = MatMul(f, w2) h = Add(g, d) y = Mul(h, m)
    """
    return _built(body, f"float[n, {WIDTH}] y")


def attention() -> onnx.ModelProto:
    """Return attention as exporters write it, of one head."""
    body = """
        q = MatMul(x, w1) k = MatMul(x, w2) v = Add(x, b1)
        t = Transpose <perm = [1, 0]> (k) s = MatMul(q, t) r = Mul(s, half)
        p = Softmax <axis = -1> (r) o = MatMul(p, v) y = Add(o, x)
    """
    return _built(body, f"float[n, {WIDTH}] y")


# By name.
CHAINS: dict[str, Callable[[], onnx.ModelProto]] = {
    "dense layers": dense,
    "residual blocks": residual,
    "attention": attention,
}


def _built(body: str, outputs: str) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {
        "w1": random.uniform(-0.5, 0.5, (WIDTH, WIDTH)).astype(np.float32),
        "w2": random.uniform(-0.5, 0.5, (WIDTH, WIDTH)).astype(np.float32),
        "b1": random.uniform(1, 2, WIDTH).astype(np.float32),
        "b2": random.uniform(-1, 1, WIDTH).astype(np.float32),
        "half": np.array(0.5, np.float32),
    }
    read = {name: array for name, array in weights.items() if f" {name})" in body}
    return build(body, f"float[n, {WIDTH}] x", outputs, weights=read)
