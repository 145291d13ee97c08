"""Convolutions, pooling, resizing, and norms of channels."""

from __future__ import annotations

import numpy as np
from arrays import f32, i64, step
from trial import chain, narrow, one

ROWS = [
    one(
        "Conv 3x3",
        "Conv",
        [f32(1, 5, 9, 11), f32(19, 5, 3, 3), f32(19)],
        constants=(1, 2),
        pads=[1] * 4,
    ),
    one("Conv fed", "Conv", [f32(1, 5, 9, 11), f32(19, 5, 3, 3), f32(19)], strides=[2, 2]),
    one(
        "Conv 5x5 dilated",
        "Conv",
        [f32(2, 6, 20, 21), f32(8, 3, 5, 5)],
        constants=(1,),
        group=2,
        dilations=[2, 1],
    ),
    one("Conv 1x1", "Conv", [f32(1, 40, 30, 30), f32(70, 40, 1, 1), f32(70)], constants=(1, 2)),
    one(
        "Conv depthwise",
        "Conv",
        [f32(1, 24, 20, 20), f32(24, 1, 3, 3), f32(24)],
        constants=(1, 2),
        group=24,
        pads=[1] * 4,
    ),
    one(
        "Conv large",
        "Conv",
        [f32(1, 32, 40, 40), f32(32, 32, 3, 3), f32(32)],
        constants=(1, 2),
        pads=[1] * 4,
    ),
    one(
        "Conv channels",
        "Conv",
        [f32(1, 7, 40, 14), f32(7, 1, 3, 3), f32(7)],
        constants=(1, 2),
        group=7,
        strides=[2, 2],
        pads=[1] * 4,
    ),
    chain(
        "Conv expanded",
        [
            ("Conv", [f32(1, 5, 23, 14), f32(43, 5, 1, 1), f32(43)], {}),
            ("Clip", [..., np.float32(0), np.float32(6)], {}),
            ("Conv", [..., f32(43, 1, 3, 3), f32(43)], {"group": 43, "pads": [1] * 4}),
            ("LeakyRelu", [...], {}),
            ("Conv", [..., f32(7, 43, 1, 1)], {}),
        ],
    ),
    chain(
        "Conv channels last, then first",
        [
            ("Conv", [f32(1, 5, 23, 14), f32(43, 5, 1, 1), f32(43)], {}),
            ("Conv", [..., f32(43, 1, 3, 3), f32(43)], {"group": 43, "pads": [1] * 4}),
        ],
    ),
    one("Conv pixels", "Conv", [f32(1, 8, 5, 5), f32(8, 8, 5, 5), f32(8)], constants=(1, 2)),
    narrow(
        one(
            "Conv in bfloat16",
            "Conv",
            [f32(2, 5, 23, 14), f32(43, 5, 3, 3), f32(43)],
            constants=(1, 2),
            pads=[1, 0, 2, 1],
        )
    ),
    narrow(
        chain(
            "Conv in bfloat16, channels last",
            [
                ("Conv", [f32(1, 40, 9, 11), f32(19, 40, 1, 1), f32(19)], {}),
                ("Conv", [..., f32(35, 19, 3, 3), f32(35)], {"strides": [2, 2]}),
                ("Relu", [...], {}),
                ("Conv", [..., f32(17, 35, 1, 1)], {}),
            ],
        )
    ),
    one("Conv line", "Conv", [f32(2, 7, 33), f32(9, 7, 4), f32(9)], constants=(1, 2), strides=[3]),
    one(
        "Conv runs",
        "Conv",
        [f32(1, 8, 9, 16), f32(19, 8, 3, 3), f32(19)],
        constants=(1, 2),
        pads=[1] * 4,
    ),
    one(
        "Conv runs of a volume",
        "Conv",
        [f32(1, 5, 3, 4, 72), f32(7, 5, 3, 3, 3)],
        constants=(1,),
        pads=[2, 1, 1, 1, 1, 1],
    ),
    one("Conv volume", "Conv", [f32(1, 3, 6, 7, 8), f32(4, 3, 3, 3, 3)], constants=(1,)),
    chain(
        "Conv Add Relu",
        [
            ("Conv", [f32(1, 8, 12, 12), f32(16, 8, 3, 3), f32(16)], {"pads": [1] * 4}),
            ("Add", [..., f32(1, 16, 1, 1)], {}),
            ("Relu", [...], {}),
            ("Conv", [..., f32(16, 16, 1, 1)], {}),
            ("PRelu", [..., f32(16, 1, 1)], {}),
        ],
    ),
    chain(
        "Conv BatchNormalization",
        [
            ("Conv", [f32(1, 8, 12, 12), f32(16, 8, 3, 3)], {}),
            ("BatchNormalization", [..., f32(16), f32(16), f32(16), np.abs(f32(16))], {}),
        ],
    ),
    one(
        "ConvTranspose",
        "ConvTranspose",
        [f32(1, 6, 7, 8), f32(6, 4, 3, 3), f32(4)],
        constants=(1, 2),
        strides=[2, 2],
        output_padding=[1, 1],
        pads=[1] * 4,
    ),
    one(
        "MaxPool",
        "MaxPool",
        [f32(1, 20, 30, 30)],
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1] * 4,
    ),
    one("MaxPool 2", "MaxPool", [f32(2, 5, 21, 34)], kernel_shape=[2, 2], strides=[2, 2]),
    one(
        "AveragePool",
        "AveragePool",
        [f32(1, 20, 30, 30)],
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1] * 4,
    ),
    one(
        "MaxPool volume",
        "MaxPool",
        [f32(1, 3, 7, 9, 11)],
        kernel_shape=[3, 2, 3],
        strides=[2, 1, 1],
        pads=[1] * 6,
    ),
    one("AveragePool volume", "AveragePool", [f32(2, 3, 6, 5, 7)], kernel_shape=[2, 3, 2]),
    *(
        one(
            f"{op} volume of {depth} taps",
            op,
            [f32(1, 8, 12, 9, 40)],
            kernel_shape=[depth, size, size],
            strides=[2, step, step],
        )
        for op in ("AveragePool", "MaxPool")
        for depth, size, step in ((1, 2, 2), (2, 3, 1), (3, 3, 2), (4, 2, 2), (5, 3, 1))
    ),
    *(
        one(
            f"MaxPool doubles {x.ndim}",
            "MaxPool",
            [x.astype(np.float64)],
            kernel_shape=[3, 2, 3][: x.ndim - 2],
            strides=[2, 1, 1][: x.ndim - 2],
            dilations=[1, 2, 1][: x.ndim - 2],
            pads=[1] * (2 * x.ndim - 4),
        )
        for x in (f32(2, 7, 33), f32(2, 5, 21, 34), f32(1, 3, 7, 9, 11))
    ),
    one("MaxPool line", "MaxPool", [f32(2, 7, 33)], kernel_shape=[3], strides=[2]),
    one(
        "ConvTranspose large",
        "ConvTranspose",
        [f32(1, 2, 90, 92), f32(2, 3, 2, 2), f32(3)],
        constants=(1, 2),
        strides=[2, 2],
    ),
    one(
        "ConvTranspose volume",
        "ConvTranspose",
        [f32(1, 4, 3, 4, 5), f32(4, 3, 3, 2, 3), f32(3)],
        constants=(1, 2),
        strides=[2, 2, 1],
        pads=[1, 0, 1, 0, 0, 1],
    ),
    one("GlobalAveragePool", "GlobalAveragePool", [f32(2, 20, 30, 30)]),
    one(
        "Resize",
        "Resize",
        [f32(1, 4, 20, 20), None, step(2.0, 4) ** np.float32([0, 0, 1, 1])],
        constants=(1,),
        mode="linear",
    ),
    one(
        "Resize nearest",
        "Resize",
        [f32(1, 4, 20, 20), None, None, i64(1, 4, 33, 47)],
        constants=(1,),
    ),
    one(
        "GroupNormalization",
        "GroupNormalization",
        [f32(2, 8, 12, 12), f32(8), f32(8)],
        constants=(1, 2),
        num_groups=4,
    ),
    one(
        "InstanceNormalization",
        "InstanceNormalization",
        [f32(2, 8, 12, 12), f32(8), f32(8)],
        constants=(1, 2),
    ),
    one(
        "NonMaxSuppression",
        "NonMaxSuppression",
        [np.abs(f32(2, 60, 4)), np.abs(f32(2, 3, 60)), i64(5), step(0.5, 1), step(0.1, 1)],
    ),
]
