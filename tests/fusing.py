"""What tests of graph transforms share: a provider for all of them, models before and after."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import onnx

import tenonnx
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


def session(
    model: Any, level: int = 99, disabled: tuple[str, ...] = (), **options: Any
) -> tenonnx.InferenceSession:
    """Returns a session on the plain provider."""
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
    """Returns the model of a graph in ONNX's own notation, with more initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> test {text}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return model


def notes(done: tenonnx.InferenceSession, name: str) -> list[str]:
    """Returns what a transform says it did."""
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
    """Runs a model before and after all transforms, and compares.

    Returns:
        How many nodes of each operator are left, and the session.
    """
    before = session(model, 0).run(None, feeds)
    done = session(model, **options)
    after = done.run(None, feeds)
    for old, new in zip(before, after, strict=True):
        assert old.dtype == new.dtype
        assert old.shape == new.shape
        np.testing.assert_allclose(
            new.astype(np.float64), old.astype(np.float64), rtol=rtol, atol=atol
        )
    return dict(Counter(node.op_type for node in done.model.graph)), done


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Returns random numbers of a shape."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
