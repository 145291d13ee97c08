"""Cases of images: convolutions, pools, resampling; and of quantized values and transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.precision.case import ABSOLUTE, LARGEST, Case, Sample, normal, spread, uniform

IMAGE = (2, 12, 15, 17)
KERNEL = normal(16, 12, 3, 3, scale=0.1)
PADDED = {"pads": (1, 1, 1, 1)}
WINDOW = {"kernel_shape": (3, 3), "strides": (2, 2)}
IMAGES: dict[str, Sample] = {"normal": [normal(*IMAGE)], "spread": [spread(1e-2, 10, *IMAGE)]}
POSITIVE: dict[str, Sample] = {
    "uniform": [uniform(0, 1, *IMAGE)],
    "large": [uniform(0, 1, 1, 2, 128, 128)],
}

CONVOLUTIONS = [
    Case("Conv", {"normal": [normal(*IMAGE), KERNEL, normal(16)]}, None, ABSOLUTE, PADDED, "3x3"),
    Case(
        "Conv",
        {"normal": [normal(*IMAGE), uniform(-1, 1, 32, 12, 1, 1)]},
        None,
        ABSOLUTE,
        name="1x1",
    ),
    Case(
        "Conv",
        {"normal": [normal(*IMAGE), normal(12, 1, 3, 3)]},
        None,
        ABSOLUTE,
        PADDED | {"group": 12},
        "depthwise",
    ),
    Case("Conv", {"normal": [normal(2, 8, 64), normal(8, 8, 5)]}, None, ABSOLUTE, name="1-D"),
    Case(
        "ConvTranspose",
        {"normal": [normal(*IMAGE), normal(12, 8, 3, 3)]},
        None,
        ABSOLUTE,
        {"strides": (2, 2)},
    ),
    Case(
        "DeformConv",
        {"normal": [normal(1, 4, 7, 7), normal(4, 4, 3, 3), uniform(-1, 1, 1, 18, 5, 5)]},
        None,
        LARGEST,
    ),
]

POOLS = [
    Case("AveragePool", POSITIVE, None, None, WINDOW),
    Case("AveragePool", POSITIVE, None, None, WINDOW | PADDED | {"count_include_pad": 1}, "padded"),
    Case("MaxPool", IMAGES, None, None, WINDOW),
    Case("LpPool", IMAGES, None, None, WINDOW, "p 2"),
    Case("LpPool", IMAGES, None, None, WINDOW | {"p": 3}, "p 3"),
    Case("GlobalAveragePool", POSITIVE, lambda x: x.mean(axis=(2, 3), keepdims=True)),
    Case("GlobalMaxPool", IMAGES, lambda x: x.max(axis=(2, 3), keepdims=True)),
    Case(
        "GlobalLpPool",
        IMAGES,
        lambda x: np.sqrt((x * x).sum(axis=(2, 3), keepdims=True)),
        version=2,
    ),
]


def resize(
    mode: str, name: str, *, scales: Any = None, sizes: Any = None, **attributes: Any
) -> Case:
    by = None if scales is None else np.array([1, 1, *scales], np.float32)
    to = None if sizes is None else np.array([*IMAGE[:2], *sizes], np.int64)
    inputs = [normal(*IMAGE), None, by, to] if to is not None else [normal(*IMAGE), None, by]
    return Case(
        "Resize",
        {"normal": inputs},
        None,
        LARGEST,
        {"mode": mode, **attributes},
        f"{mode}, {name}",
        version=19,
    )


ALIGNED = {"coordinate_transformation_mode": "align_corners"}
RESAMPLING = [
    resize("linear", "2", scales=(2.0, 2.0)),
    resize("linear", "1.7", scales=(1.7, 0.6)),
    resize("linear", "align_corners 1.7", scales=(1.7, 1.3), **ALIGNED),
    resize("linear", "antialias", sizes=(7, 9), antialias=1),
    resize("cubic", "2", scales=(2.0, 2.0)),
    resize("cubic", "align_corners 1.7", scales=(1.7, 1.3), **ALIGNED),
    resize("nearest", "align_corners 1.7", scales=(1.7, 1.3), **ALIGNED),
    Case(
        "GridSample",
        {"normal": [normal(*IMAGE), uniform(-1, 1, 2, 9, 9, 2)]},
        None,
        LARGEST,
        name="linear",
    ),
    Case(
        "GridSample",
        {"normal": [normal(*IMAGE), uniform(-1, 1, 2, 9, 9, 2)]},
        None,
        LARGEST,
        {"mode": "cubic"},
        "cubic",
    ),
    Case(
        "RoiAlign",
        {
            "normal": [
                normal(*IMAGE),
                np.array([[1.5, 2, 9, 11], [0, 3, 12, 14.0]]),
                np.array([0, 1]),
            ]
        },
        None,
        LARGEST,
        {"output_height": 4, "output_width": 4},
        version=16,
    ),
    Case(
        "AffineGrid",
        {"normal": [normal(2, 2, 3), np.array([2, 3, 9, 11])]},
        None,
        LARGEST,
        version=20,
    ),
]

QUANTIZED = [
    Case(
        "DequantizeLinear",
        {
            "bytes": [
                np.arange(256, dtype=np.uint8).reshape(16, 16),
                spread(1e-3, 1, 16, signed=False),
                np.arange(0, 256, 16).astype(np.uint8),
            ]
        },
        lambda x, s, z: (x.astype(float) - z[:, None]) * s[:, None],
        attributes={"axis": 0},
        version=21,
    ),
    Case(
        "DFT",
        {"normal": [normal(2, 64, 1)]},
        None,
        LARGEST,
        version=20,
        dtypes=("float32", "float16"),
    ),
    Case(
        "STFT",
        {"normal": [normal(2, 128, 1), np.array(16), uniform(0, 1, 32)]},
        None,
        LARGEST,
        version=17,
    ),
]

CASES = [*CONVOLUTIONS, *POOLS, *RESAMPLING, *QUANTIZED]
