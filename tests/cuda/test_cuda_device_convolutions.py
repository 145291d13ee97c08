"""Convolutions on a device, by cuDNN where it is installed; skipped where there is no device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from direct import convolve
from kernel_calls import BFLOAT16, draw
from test_cuda_convolutions import CASES, TRANSPOSED, network

import tenonnx
from models import model, node, value
from tenonnx.provider import why_unusable
from tenonnx_array.conv_transpose import conv_transpose
from tenonnx_cuda.capture.graph import GraphedSteps
from tenonnx_cuda.provider import CUDAExecutionProvider

MISSING = why_unusable(CUDAExecutionProvider)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

ERRORS = {"float32": 1e-5, "tf32": 3e-3, "float16": 3e-3, "bfloat16": 2e-2}
"""Of all results together, by what factors are rounded to."""


def opened(made: onnx.ModelProto, **options: Any) -> tenonnx.InferenceSession:
    return tenonnx.InferenceSession(made, providers=[("cuda", options), "cpu"])


def near(actual: Any, expected: Any, kind: str) -> None:
    wide = np.asarray(actual, np.float64)
    assert np.isfinite(wide).all()
    assert np.linalg.norm(wide - expected) <= ERRORS[kind] * np.linalg.norm(expected)


def single(op: str, arrays: list[Any], shape: tuple[int, ...], attributes: Any) -> Any:
    """A model of one node and what follows it, whose weights are constants."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    nodes = [node(op, "x w b", "c", **attributes), node("Relu", "c", "r"), node("Neg", "r", "y")]
    given = dict(zip("wb", arrays[1:], strict=True))
    return model(nodes, [value("x", kind, arrays[0].shape)], [value("y", kind, shape)], given)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("name", [*CASES, *TRANSPOSED])
def test_convolutions(name: str, kind: str) -> None:
    dtype = {"float16": np.float16, "bfloat16": BFLOAT16}.get(kind, np.float32)
    transposed = name in TRANSPOSED
    x_shape, w_shape, attributes = (TRANSPOSED if transposed else CASES)[name]
    maps = w_shape[1] * attributes.get("group", 1) if transposed else w_shape[0]
    arrays = [draw(i, *s, dtype=dtype) for i, s in enumerate((x_shape, w_shape, (maps,)))]
    wide = [a.astype(np.float64) for a in arrays]
    if transposed:
        expected = conv_transpose(np, *wide, **attributes)
    else:
        expected = convolve(*wide, kernel=w_shape[2:], **attributes)
    op = "ConvTranspose" if transposed else "Conv"
    session = opened(single(op, arrays, expected.shape, attributes), use_tf32=kind == "tf32")
    for _ in range(2):
        near(session.run(None, {"x": arrays[0]})[0], -np.maximum(expected, 0), kind)


@pytest.mark.parametrize("kind", ["tf32", "float16", "bfloat16"])
def test_a_captured_network_agrees(kind: str) -> None:
    dtype = {"float16": np.float16, "bfloat16": BFLOAT16}.get(kind, np.float32)
    made = network(dtype)
    session, plain = opened(made, enable_cuda_graph=True), tenonnx.InferenceSession(made)
    for seed in range(5):
        x = draw(seed, 1, 8, 6, 6, dtype=dtype)
        pairs = zip(session.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True)
        for actual, expected in pairs:
            near(actual, expected.astype(np.float64), kind)
    replays = [
        step.call.replays for step in session.plan.steps if isinstance(step.call, GraphedSteps)
    ]
    assert replays == [4]
