"""Products, convolutions, sums and tables of bytes."""

from __future__ import annotations

import numpy as np
from arrays import MS, f32, i8, ids, step, u8, zero
from trial import Trial, chain, one

BIAS = ids(-9, 9, 24, dtype=np.int32)


def _conv(name: str, side: int, channels: int, group: int, **attributes: object) -> Trial:
    return one(
        f"QLinearConv {name}",
        "QLinearConv",
        [
            u8(2, channels, 12, 12), step(), zero(), i8(24, channels // group, side, side),
            step(0.1, 24), zero(0, 24, dtype=np.int8), step(0.2), zero(5), BIAS,
        ],
        constants=range(1, 9), group=group, **attributes,
    )  # fmt: skip


def _between(name: str, op: str, *more: object, **attributes: object) -> Trial:
    steps = [
        ("DequantizeLinear", [u8(2, 8, 20, 20), step(), zero()], {}),
        (op, [..., *more], attributes),
        ("QuantizeLinear", [..., step(0.1), zero()], {}),
    ]
    return chain(name, steps)


ROWS = [
    _conv("3x3", 3, 5, 1, pads=[1] * 4),
    _conv("1x1", 1, 8, 1),
    _conv("groups", 3, 6, 2, strides=[2, 2]),
    _conv("depthwise", 3, 24, 24, pads=[1] * 4),
    one(
        "ConvInteger",
        "ConvInteger",
        [u8(1, 5, 9, 9), u8(24, 5, 3, 3), zero(), zero(7, 24)],
        constants=(1, 2, 3),
        pads=[1] * 4,
    ),
    one(
        "MatMulInteger",
        "MatMulInteger",
        [u8(9, 33), i8(33, 65), zero(), zero(1, 65, dtype=np.int8)],
        constants=(1, 2, 3),
    ),
    *(
        one(f"MatMulInteger {name}", "MatMulInteger", given)
        for name, given in (
            ("narrow", [u8(9, 33), i8(33, 5)]),
            ("of one row", [i8(1, 32), u8(32, 31)]),
            ("narrow stacks", [u8(2, 3, 5, 7), i8(3, 7, 9)]),
            ("shallow", [u8(40, 1), u8(1, 3)]),
        )
    ),
    one(
        "QLinearMatMul",
        "QLinearMatMul",
        [u8(9, 33), step(), zero(), u8(33, 65), step(0.1, 65), zero(3, 65), step(9.0), zero()],
        constants=range(1, 8),
    ),
    one(
        "QGemm",
        "QGemm",
        [
            u8(9, 33),
            step(),
            zero(),
            u8(65, 33),
            step(0.1, 65),
            zero(3, 65),
            ids(-9, 9, 65, dtype=np.int32),
            step(9.0),
            zero(),
        ],
        domain=MS,
        constants=range(1, 9),
        transB=1,
    ),
    one(
        "MatMulIntegerToFloat",
        "MatMulIntegerToFloat",
        [u8(9, 33), u8(33, 65), step(), step(0.1, 65), zero(), zero(3, 65), f32(65)],
        domain=MS,
        constants=range(1, 7),
    ),
    one(
        "DynamicQuantizeMatMul",
        "DynamicQuantizeMatMul",
        [f32(9, 33), u8(33, 65), step(0.1, 65), zero(3, 65), f32(65)],
        domain=MS,
        constants=range(1, 5),
    ),
    one("DynamicQuantizeLinear", "DynamicQuantizeLinear", [f32(300, 300)], 3),
    *(
        one(
            op,
            op,
            [u8(2, 300, 300), step(), zero(), u8(300), step(0.2), zero(), step(0.2), zero()],
            domain=MS,
            constants=(1, 2, 4, 5, 6, 7),
        )
        for op in ("QLinearAdd", "QLinearMul")
    ),
    one(
        "QLinearSigmoid",
        "QLinearSigmoid",
        [u8(300, 300), step(), zero(), step(0.01), zero()],
        domain=MS,
        constants=range(1, 5),
    ),
    one(
        "QLinearSoftmax",
        "QLinearSoftmax",
        [u8(30, 30), step(), zero(), step(0.01), zero()],
        domain=MS,
        constants=range(1, 5),
        opset=13,
    ),
    one(
        "QLinearGlobalAveragePool",
        "QLinearGlobalAveragePool",
        [u8(2, 8, 9, 9), step(), zero(), step(), zero()],
        domain=MS,
        constants=range(1, 5),
        channels_last=0,
    ),
    _between("MaxPool of bytes", "MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    _between("Relu of bytes", "Relu"),
    one("QuantizeLinear", "QuantizeLinear", [f32(300, 300), step(), zero()], constants=(1, 2)),
    one("DequantizeLinear", "DequantizeLinear", [u8(300, 300), step(), zero()], constants=(1, 2)),
    one(
        "QuantizeLinear by row",
        "QuantizeLinear",
        [f32(30, 40), step(0.1, 30), zero(3, 30)],
        constants=(1, 2),
        axis=0,
    ),
    one("DequantizeLinear", "DequantizeLinear", [u8(300, 300), step(), zero()], constants=(1, 2)),
    one(
        "DequantizeLinear blocks",
        "DequantizeLinear",
        [u8(32, 40), step(0.1, 2, 40), zero(3, 2, 40)],
        constants=(1, 2),
        axis=0,
        block_size=16,
    ),
]
