"""Functions for tests of graph transforms: a provider for all of them, models before and after."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import onnx

import tenonnx
from fuzz.bodies import tail_moved
from tenonnx.provider import HOST, Device
from tenonnx_array.provider import ArrayProvider


class PlainProvider(ArrayProvider):
    """numpy and nothing else, so that every transform is worth running."""

    name: ClassVar[str] = "PlainExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("plain",)
    device: Device = HOST


class Plain:
    @tenonnx.hookimpl
    def register_providers(self, register: Any) -> None:
        register(PlainProvider)


GELUS = {
    "erf, halved last": """d = Div(x, root)  e = Erf(d)  a = Add(e, one)  m = Mul(x, a)
               y = Mul(m, half)""",
    "erf, halved first": """d = Mul(x, inv)  e = Erf(d)  a = Add(one, e)  h = Mul(half, x)
               y = Mul(h, a)""",
    "erf, sum halved": """d = Div(x, root)  e = Erf(d)  a = Add(e, one)  h = Mul(a, half)
               y = Mul(x, h)""",
    "tanh": """c = Pow(x, three)  k = Mul(cubic, c)  s = Add(x, k)  t = Mul(s, slope)  u = Tanh(t)
               a = Add(u, one)  h = Mul(x, half)  y = Mul(h, a)""",
    "tanh of products": """x2 = Mul(x, x)  c = Mul(x2, x)  k = Mul(cubic, c)  s = Add(k, x)
               t = Mul(slope, s)  u = Tanh(t)  a = Add(one, u)  h = Mul(half, a)  y = Mul(x, h)""",
    "tanh, factored": """k = Mul(cubic, x)  k2 = Mul(k, x)  s = Add(k2, one)  p = Mul(x, slope)
               t = Mul(p, s)  u = Tanh(t)  a = Add(u, one)  m = Mul(x, a)  y = Mul(m, half)""",
}  # fmt: skip

NUMBERS = {
    "root": np.float32(np.sqrt(2)), "inv": np.float32(np.sqrt(0.5)), "one": np.float32(1),
    "half": np.float32(0.5), "three": np.float32(3), "cubic": np.float32(0.044715),
    "slope": np.float32(np.sqrt(2 / np.pi)),
}  # fmt: skip

ELEMENTWISE = "(float[a,b,8] x) => (float[a,b,8] y) {{ {} }}"


def session(
    model: Any, level: int = 99, disabled: tuple[str, ...] = (), **options: Any
) -> tenonnx.InferenceSession:
    """Return a session on the plain provider."""
    plugins = tenonnx.PluginSet()
    plugins.register(Plain())
    chosen = tenonnx.SessionOptions(
        plugins=plugins,
        graph_optimization_level=tenonnx.GraphOptimizationLevel(level),
        disabled_transforms=disabled,
        **options,
    )
    return tenonnx.InferenceSession(model, chosen, providers=["plain"])


def parse(text: str, opset: int = 21, **weights: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """Return the model of a graph in ONNX's own notation, with more initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> test {text}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return model


def notes(done: tenonnx.InferenceSession, name: str) -> list[str]:
    """Return what a transform says it did."""
    (report,) = [report for report in done.transforms if report.name == name]
    return list(report.notes)


def fused(
    model: onnx.ModelProto,
    feeds: dict[str, np.ndarray[Any, Any]],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    **options: Any,
) -> tuple[dict[str, int], tenonnx.InferenceSession]:
    """Run a model before and after all transforms, and with its tail in a body; compare.

    Returns:
        How many nodes of each operator are left, and the session.
    """
    before = session(model, 0).run(None, feeds)
    done = session(model, **options)
    results = [done.run(None, feeds)]
    draw = random.Random(model.SerializeToString(deterministic=True))
    if (moved := tail_moved(model, feeds, draw)) is not None:
        results.append(session(moved[0], **options).run(None, moved[1]))
    for after in results:
        for old, new in zip(before, after, strict=True):
            assert old.dtype == new.dtype
            assert old.shape == new.shape
            np.testing.assert_allclose(
                new.astype(np.float64), old.astype(np.float64), rtol=rtol, atol=atol
            )
    return dict(Counter(node.op_type for node in done.model.graph)), done


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return random numbers of a shape."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
