"""Arrays of more axes than numpy's own arithmetic on shapes takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from onnx import numpy_helper

import tenonnx
from models import model, node, value
from tenonnx.graph.shape_checks import MAX_BROADCAST_AXES, broadcast_shapes

LEFT = np.arange(24, dtype=np.float32).reshape((1,) * 60 + (2, 3, 1, 4)) / 24
RIGHT = np.arange(24, dtype=np.float32).reshape((1,) * 60 + (2, 1, 3, 4)) / 24
ACROSS = RIGHT.swapaxes(-1, -2)

CASES = {
    "Add": (LEFT, RIGHT),
    "Pow": (LEFT, RIGHT),
    "MatMul": (RIGHT, ACROSS.repeat(3, axis=-3)),
    "Exp": (LEFT,),
    "Softmax": (LEFT,),
    "Expand": (LEFT, np.array((1,) * 62 + (3, 4))),
}
EXPECTED = {
    "Add": np.add,
    "Pow": np.power,
    "MatMul": np.matmul,
    "Exp": np.exp,
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "Expand": lambda x, _: x.repeat(3, axis=-2),
}


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("op", CASES)
def test_arrays_have_64_axes(
    op: str, constant: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", mode)
    arrays = {f"x{n}": array for n, array in enumerate(CASES[op])}
    (y,) = _answer(op, arrays, constant)
    expected = EXPECTED[op](*CASES[op])
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.ravel(), expected.ravel(), rtol=1e-5)


@pytest.mark.parametrize("mode", ["0", "1"])
@pytest.mark.parametrize("op", ["Add", "Pow", "MatMul"])
def test_shapes_that_do_not_broadcast(op: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has them, whatever their number of axes."""
    monkeypatch.setenv("TENONNX_JIT", mode)
    for ones in (1, 58):
        x = np.ones((1,) * ones + (2, 3, 3), np.float32)
        with pytest.raises(tenonnx.TenonnxError, match=r"was given|to broadcast|that b"):
            _answer(op, {"x0": x, "x1": x.repeat(2, axis=-3)}, False)


def _answer(op: str, arrays: dict[str, Any], constant: bool) -> Any:
    inputs = [
        value(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)
        for name, x in arrays.items()
        if not constant
    ]
    proto = model([node(op, " ".join(arrays), "y")], inputs, [value("y", shape=None)])
    if constant:
        proto.graph.initializer.extend(
            numpy_helper.from_array(np.ascontiguousarray(x), name) for name, x in arrays.items()
        )
    return tenonnx.InferenceSession(proto).run(None, {} if constant else arrays)


@given(hnp.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_dims=5))
def test_shapes_broadcast_as_by_numpy(shapes: hnp.BroadcastableShapes) -> None:
    found = [(1,) * (64 - len(shape)) + shape for shape in shapes.input_shapes]
    wide = (1,) * (64 - len(shapes.result_shape)) + shapes.result_shape
    assert broadcast_shapes(*shapes.input_shapes) == shapes.result_shape
    assert broadcast_shapes(*found) == broadcast_shapes(*found, *shapes.input_shapes) == wide


def test_shapes_of_many_axes_that_do_not_broadcast() -> None:
    ones = (1,) * MAX_BROADCAST_AXES
    with pytest.raises(ValueError, match="that broadcast"):
        broadcast_shapes((*ones, 2), (3,))
