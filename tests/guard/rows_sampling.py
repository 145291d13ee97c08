"""Images that are read at places of their own, or put together from blocks."""

from __future__ import annotations

import numpy as np
from arrays import f32, i64, ids
from trial import one

ROIS = np.abs(f32(7, 4)) * np.float32([9, 9, 20, 20])
PIXELS = ids(0, 99, 1, 3, 30, 20).astype(np.uint8)
DOUBLES, TWO = f32(2, 36, 9, 14).astype(np.float64), np.ones(2)
SCALES = np.float32([1, 1, 1.5, 2])

ROWS = [
    *(
        one(f"GridSample {mode}", "GridSample", [f32(2, 3, 9, 11), f32(2, 23, 19, 2)], mode=mode)
        for mode in ("linear", "nearest", "cubic")
    ),
    one(
        "GridSample volumes",
        "GridSample",
        [f32(1, 2, 4, 5, 6), f32(1, 9, 8, 7, 3)],
        align_corners=1,
        padding_mode="border",
    ),
    *(
        one(
            f"RoiAlign {ratio}",
            "RoiAlign",
            [f32(2, 3, 19, 23), ROIS, ids(0, 2, 7)],
            output_height=5,
            output_width=3,
            sampling_ratio=ratio,
        )
        for ratio in (0, 2)
    ),
    *(
        one(
            f"DeformConv {len(rest)}",
            "DeformConv",
            [f32(2, 4, 9, 11), f32(6, 4, 3, 3), 3 * f32(2, 36, 7, 9), *rest],
            offset_group=2,
        )
        for rest in ((), (f32(6), f32(2, 18, 7, 9)))
    ),
    one(
        "GridSample doubles",
        "GridSample",
        [DOUBLES[:, :, :9, :11], DOUBLES[:, 0, :5, :14, None] * TWO],
    ),
    one(
        "DeformConv doubles",
        "DeformConv",
        [DOUBLES[:, :4, :9, :11], DOUBLES[:, :4, :3, :3], DOUBLES[:, :36, :7, :9]],
        offset_group=2,
    ),
    *(
        one(
            f"Col2Im {x.dtype}",
            "Col2Im",
            [x, i64(9, 11), i64(3, 2)],
            constants=(1, 2),
            strides=[2, 1],
            dilations=[1, 2],
            pads=[1, 0, 1, 2],
        )
        for x in (f32(2, 18, 55).astype(dtype) for dtype in ("f4", "i8"))
    ),
    one("Resize nearest bytes", "Resize", [PIXELS, None, SCALES], constants=(1,)),
]
