from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from draw import RNG, below, positive, real, whole
from rows import Row

BYTES = (np.uint8, np.int8)


def pair(dtype: Any, low: float = 0.01, high: float = 0.05) -> list[Any]:
    """A scale and a zero point."""
    return [positive(low=low, high=high), whole(dtype)]


def elementwise_rows(dtype: Any) -> Iterator[Row]:
    kind = np.dtype(dtype).name
    for op, (a, b) in itertools.product(
        ("QLinearAdd", "QLinearMul"),
        (((3, 20), (3, 20)), ((3, 20), (20,)), ((2, 1, 5), (3, 1)), ((3, 20), ())),
    ):
        inputs = [
            whole(dtype, *a), *pair(dtype), whole(dtype, *b), *pair(dtype),
            *pair(dtype, 0.05, 0.1),
        ]  # fmt: skip
        yield Row(op, inputs, name=f"{kind}-{a}-{b}")
    inputs = [whole(dtype, 3, 50), *pair(dtype), *pair(dtype, 0.003, 0.004)]
    yield Row("QLinearSigmoid", inputs, name=kind, constants=(1, 2, 3, 4))
    for alpha in (0.01, 0.3):
        inputs = [whole(dtype, 3, 50), *pair(dtype), *pair(dtype)]
        given = {"alpha": alpha}
        yield Row("QLinearLeakyRelu", inputs, given, name=f"{kind}-{alpha}", constants=(1, 2, 3, 4))
    for opset, axis in ((13, -1), (13, 1), (12, 1), (12, 2)):
        zero = np.array(0 if dtype is np.uint8 else -128, dtype)
        inputs = [whole(dtype, 2, 5, 12), *pair(dtype), np.array(1 / 256, np.float32), zero]
        given = {"opset": opset, "axis": axis}
        label = f"{kind}-{opset}-{axis}"
        yield Row("QLinearSoftmax", inputs, given, name=label, constants=(1, 2, 3, 4))
    condition = RNG.random((3, 1)) < 0.5
    inputs = [condition, whole(dtype, 3, 20), *pair(dtype), whole(dtype, 20), *pair(dtype)]
    yield Row("QLinearWhere", [*inputs, *pair(dtype)], name=kind)


def shaped_rows(dtype: Any) -> Iterator[Row]:
    kind = np.dtype(dtype).name
    pools: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((2, 3, 7, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 3, 7, 7), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
        ((2, 6, 6, 3), {"kernel_shape": [2, 2], "channels_last": 1, "strides": [2, 2]}),
        ((2, 3, 7, 7), {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]}),
    ]
    for i, (shape, given) in enumerate(pools):
        inputs = [whole(dtype, *shape), *pair(dtype), *pair(dtype)]
        yield Row("QLinearAveragePool", inputs, given, name=f"{kind}-{i}")
        if "count_include_pad" not in given and "channels_last" not in given:
            turned = whole(dtype, 2, 7, 7, 3)
            yield Row("NhwcMaxPool", [turned], given, name=f"{kind}-{i}")
    for last in (0, 1):
        inputs = [whole(dtype, 2, 5, 4, 6), *pair(dtype), *pair(dtype)]
        given = {"channels_last": last}
        yield Row("QLinearGlobalAveragePool", inputs, given, name=f"{kind}-{last}")
    for axis in (0, 1, -1):
        parts = [[whole(dtype, 3, 4), *pair(dtype)] for _ in range(3)]
        inputs = [*pair(dtype), *itertools.chain(*parts)]
        yield Row("QLinearConcat", inputs, {"axis": axis}, name=f"{kind}-{axis}")
    for count, given in (((), {}), ((4,), {"axis": 1}), ((3,), {"axis": 0})):
        scales, zeros = positive(*count), whole(dtype, *count)
        label = f"{kind}-{given}"
        yield Row("QuantizeLinear", [real(3, 4), scales, zeros], given, name=label)
        yield Row("DequantizeLinear", [whole(dtype, 3, 4), scales, zeros], given, name=label)


def convolution_rows() -> Iterator[Row]:
    given: dict[str, Any] = {"pads": [1, 1, 1, 1], "channels_last": 1}
    for group, w in ((1, np.int8), (2, np.uint8)):
        inputs = [
            whole(np.uint8, 1, 6, 6, 4), *pair(np.uint8), whole(w, 6, 4 // group, 3, 3),
            positive(), np.array(0, w), *pair(np.uint8, 0.5, 0.9),
            below(99, 6, dtype=np.int32),
        ]  # fmt: skip
        label = f"{np.dtype(w).name}-{group}"
        constants = (3, 4, 5)
        yield Row("QLinearConv", inputs, given | {"group": group}, name=label, constants=constants)


ROWS = [
    *(row for dtype in BYTES for row in elementwise_rows(dtype)),
    *(row for dtype in BYTES for row in shaped_rows(dtype)),
    *convolution_rows(),
]
