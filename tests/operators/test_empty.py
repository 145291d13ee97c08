"""Operators over tensors without elements, which a batch or a list may happen to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenonnx
from models import model, node, value

Shape = tuple[int, ...]
CASES: list[tuple[str, str, Shape, dict[str, Any]]] = [
    ("Conv", "0,2,9,9 3,2,3,3", (0, 3, 7, 7), {}),
    ("Conv", "2,0,9,9 3,0,3,3", (2, 3, 7, 7), {}),
    ("Conv", "0,4,9 4,1,3", (0, 4, 7), {"group": 4}),
    ("ConvTranspose", "0,2,16 2,5,3", (0, 5, 18), {}),
    ("ConvTranspose", "1,1,0 1,1,3", (1, 1, 1), {"strides": [2]}),
    ("ConvTranspose", "5,0,16 0,5,1", (5, 5, 16), {}),
    ("DeformConv", "0,2,5,5 3,2,3,3 0,18,3,3", (0, 3, 3, 3), {}),
    ("GridSample", "0,3,4,4 0,2,2,2", (0, 3, 2, 2), {}),
    ("GridSample", "2,3,4,4 2,0,2,2", (2, 3, 0, 2), {}),
    ("MaxPool", "0,3,4,4", (0, 3, 3, 3), {"kernel_shape": [2, 2]}),
    ("AveragePool", "0,3,4,4", (0, 3, 3, 3), {"kernel_shape": [2, 2]}),
    ("GlobalAveragePool", "0,3,4,4", (0, 3, 1, 1), {}),
    ("LSTM", "4,0,3 1,16,3 1,16,4", (4, 1, 0, 4), {"hidden_size": 4}),
    ("GRU", "0,2,3 1,12,3 1,12,4", (0, 1, 2, 4), {"hidden_size": 4}),
    ("LayerNormalization", "0,4 4", (0, 4), {}),
    ("RMSNormalization", "0,4 4", (0, 4), {}),
    ("InstanceNormalization", "0,4,5 4 4", (0, 4, 5), {}),
    ("GroupNormalization", "0,4,5 4 4", (0, 4, 5), {"num_groups": 2}),
    ("BatchNormalization", "0,4,5 4 4 4 4", (0, 4, 5), {}),
    ("LRN", "0,4,5,5", (0, 4, 5, 5), {"size": 3}),
    ("Softmax", "0,4", (0, 4), {}),
    ("Softmax", "4,0", (4, 0), {}),
    ("LogSoftmax", "4,0", (4, 0), {}),
    ("Hardmax", "0,4", (0, 4), {}),
    ("MatMul", "2,0,4 4,3", (2, 0, 3), {}),
    ("MatMul", "2,0 0,3", (2, 3), {}),
    ("Gemm", "0,4 4,3 3", (0, 3), {}),
    ("Einsum", "0,4 4,3", (0, 3), {"equation": "ij,jk->ik"}),
    ("DepthToSpace", "0,4,2,2", (0, 1, 4, 4), {"blocksize": 2}),
    ("LpNormalization", "0,3", (0, 3), {}),
    ("Attention", "0,2,3,4 0,2,3,4 0,2,3,4", (0, 2, 3, 4), {}),
    ("Attention", "0,3,8 0,3,8 0,3,8", (0, 3, 8), {"q_num_heads": 2, "kv_num_heads": 2}),
    ("Attention", "1,0,8 1,3,8 1,3,8", (1, 0, 8), {"q_num_heads": 2, "kv_num_heads": 2}),
    ("RotaryEmbedding", "0,3,8 0,3,2 0,3,2", (0, 3, 8), {"num_heads": 2}),
]


@pytest.mark.parametrize("mode", ["0", "wait"])
@pytest.mark.parametrize(("op", "shapes", "expected", "attributes"), CASES, ids=str)
def test_nothing_makes_nothing_or_zeros(
    op: str,
    shapes: str,
    expected: Shape,
    attributes: dict[str, Any],
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENONNX_JIT", mode)
    given = [tuple(map(int, shape.split(","))) for shape in shapes.split()]
    feeds = {f"x{n}": np.ones(shape, np.float32) for n, shape in enumerate(given)}
    inputs = [value(name, shape=[None] * array.ndim) for name, array in feeds.items()]
    proto = model([node(op, " ".join(feeds), "y", **attributes)], inputs, [value("y")], opset=23)
    (y,) = tenonnx.InferenceSession(proto).run(None, feeds)
    assert y.shape == expected
    assert not y.any()
