"""Pooling at versions, ranks and attributes that the backend suite leaves out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import direct
import ml_dtypes
import numpy as np
from case import Case
from formula import RNG, in64

BF16 = ml_dtypes.bfloat16


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def geometry(attributes: Any) -> dict[str, Any]:
    kept = {n: v for n, v in attributes.items() if n in ("strides", "dilations", "pads")}
    kernel = {"kernel": attributes["kernel_shape"]}
    return kept | kernel | {"ceil": bool(attributes.get("ceil_mode"))}


def rounded(function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    return lambda x: function(x, **given).astype(x.dtype)


def max_pool(version: int, name: str, x: Any, outputs: int = 1, **attributes: Any) -> Case:
    order = "F" if attributes.get("storage_order") else "C"

    def answer(x: Any) -> Any:
        where = geometry(attributes)
        y = direct.maximum(x, **where).astype(x.dtype)
        return y if outputs == 1 else (y, direct.places(x, order, **where))

    return Case("MaxPool", version, [x], answer, attributes, name=name, rtol=0, atol=0)


def average_pool(version: int, name: str, x: Any, **attributes: Any) -> Case:
    padding = bool(attributes.get("count_include_pad"))
    answer = rounded(direct.mean, with_padding=padding, **geometry(attributes))
    return Case("AveragePool", version, [x], answer, attributes, name=name)


def lp_pool(version: int, name: str, x: Any, p: float = 2, **attributes: Any) -> Case:
    answer = rounded(direct.norm, p=p, **geometry(attributes))
    given = attributes if p == 2 else attributes | {"p": p}
    return Case("LpPool", version, [x], answer, given, name=name)


LINE, IMAGE, VOLUME = draw(2, 3, 11), draw(2, 3, 9, 8), draw(1, 2, 5, 6, 4)
TIES = RNG.integers(0, 3, (2, 3, 7, 6)).astype(np.float32)
BYTES = RNG.integers(-128, 128, (1, 2, 6, 6)).astype(np.int8)
PADDED = {"kernel_shape": (3, 2), "strides": (2, 3), "pads": (1, 0, 2, 1)}
SQUARE = {"kernel_shape": (3, 3), "strides": (2, 2)}
REACHING = {"kernel_shape": (2, 2), "strides": (3, 3), "ceil_mode": 1}
DILATED = {"kernel_shape": (2, 3), "dilations": (3, 2), "pads": (1, 2, 1, 2)}
NAN = np.float32([[[1, np.nan, 3, 0, -np.inf, -np.inf, -np.inf]]])
LEFT, INF = np.float32([[[np.nan, np.nan, 3, 0, -np.inf]]]), np.inf

MAXIMA = [
    max_pool(1, "plain", IMAGE, **PADDED),
    max_pool(8, "places", IMAGE, 2, **PADDED),
    max_pool(8, "columns", IMAGE, 2, storage_order=1, **PADDED),
    max_pool(8, "one", IMAGE, storage_order=1, **PADDED),
    max_pool(10, "ceil", IMAGE, 2, **SQUARE, ceil_mode=1),
    max_pool(10, "none-starts-in-padding", IMAGE, 2, **REACHING, pads=(0, 0, 1, 1)),
    max_pool(10, "reaches-past-all", draw(1, 1, 2, 4), **SQUARE, ceil_mode=1),
    max_pool(11, "dilated", IMAGE, 2, **DILATED),
    max_pool(11, "ties", TIES, 2, **SQUARE),
    max_pool(11, "line", LINE, 2, kernel_shape=(4,), strides=(3,), pads=(1, 2)),
    max_pool(11, "volume", VOLUME, 2, kernel_shape=(2, 3, 2), pads=(1, 1, 0, 0, 1, 1)),
    max_pool(11, "columns-volume", VOLUME, 2, kernel_shape=(2, 3, 2), storage_order=1),
    max_pool(11, "strided-one", IMAGE, kernel_shape=(1, 1), strides=(2, 3)),
    max_pool(12, "bytes", BYTES, 2, kernel_shape=(2, 2), pads=(1, 1, 1, 1)),
    max_pool(22, "half", IMAGE.astype(np.float16), 2, **SQUARE),
    max_pool(22, "bfloat16", IMAGE.astype(BF16), 2, **SQUARE),
    max_pool(12, "doubles", IMAGE.astype(np.float64), **PADDED),
    max_pool(12, "doubles-dilated", IMAGE.astype(np.float64), **DILATED),
    max_pool(12, "doubles-line", LINE.astype(np.float64), kernel_shape=(4,), pads=(1, 2)),
    max_pool(12, "doubles-volume", VOLUME.astype(np.float64), kernel_shape=(2, 3, 2)),
    Case("MaxPool", 12, [np.float64(NAN)], np.float64(LEFT), {"kernel_shape": (3,)}, name="nans"),
    Case(
        "MaxPool",
        22,
        [NAN],
        (LEFT, np.int64([[[1, 1, 2, 3, 4]]])),
        {"kernel_shape": (3,)},
        name="nan-and-inf",
    ),
    Case(
        "MaxPool",
        11,
        [np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)],
        np.float32([[[[6, 8, 9], [16, 18, 19], [21, 23, 24]]]]),
        {"kernel_shape": (3, 3), "strides": (2, 2), "auto_pad": "SAME_UPPER"},
        name="same-centred",
    ),
    Case(
        "MaxPool",
        11,
        [np.float32([[[1, 2, 3, 4, 5]]])],
        np.float32([[[2, 4, 5]]]),
        {"kernel_shape": (2,), "strides": (2,), "auto_pad": "SAME_UPPER"},
        name="same-upper",
    ),
    Case(
        "MaxPool",
        11,
        [np.float32([[[1, 2, 3, 4, 5]]])],
        np.float32([[[1, 3, 5]]]),
        {"kernel_shape": (2,), "strides": (2,), "auto_pad": "SAME_LOWER"},
        name="same-lower",
    ),
    Case(
        "MaxPool",
        11,
        [np.float32([[[1, 2, 3, 4, 5]]])],
        np.float32([[[2, 4]]]),
        {"kernel_shape": (2,), "strides": (2,), "auto_pad": "VALID", "ceil_mode": 1},
        name="valid-whatever-the-ceiling",
    ),
    *(
        Case(
            operator,
            19 if operator == "AveragePool" else 12,
            [np.float32([[[1, 2, 3, 4]]])],
            np.float32([[[1, 3]]]),
            {"kernel_shape": (1,), "strides": (2,), "auto_pad": pad},
            name=f"{pad}-of-strides-longer-than-kernels",
        )
        for operator in ("AveragePool", "MaxPool")
        for pad in ("SAME_UPPER", "SAME_LOWER")
    ),
    Case(
        "MaxPool",
        11,
        [draw(0, 3, 4, 4)],
        np.zeros((0, 3, 3, 3), np.float32),
        {"kernel_shape": (2, 2)},
        name="no-images",
    ),
]

MEANS = [
    average_pool(1, "plain", IMAGE, **PADDED),
    average_pool(7, "padding", IMAGE, count_include_pad=1, **PADDED),
    average_pool(7, "no-padding", IMAGE, **PADDED),
    average_pool(10, "ceil", IMAGE, ceil_mode=1, **SQUARE),
    average_pool(10, "ceil-padding", IMAGE, ceil_mode=1, count_include_pad=1, **PADDED),
    average_pool(11, "none-starts-in-padding", IMAGE, **REACHING, pads=(0, 0, 1, 1)),
    average_pool(11, "line", LINE, kernel_shape=(4,), strides=(3,), pads=(1, 2)),
    average_pool(11, "volume", VOLUME, kernel_shape=(2, 3, 2), pads=(1, 1, 0, 0, 1, 1)),
    average_pool(19, "dilated", IMAGE, **DILATED),
    average_pool(19, "dilated-padding", IMAGE, count_include_pad=1, **DILATED),
    average_pool(19, "dilated-ceil", IMAGE, ceil_mode=1, strides=(2, 2), **DILATED),
    average_pool(22, "double", np.float64(IMAGE), **SQUARE),
    Case(
        "AveragePool",
        22,
        [np.full((1, 1, 64, 64), 1.5, BF16)],
        np.full((1, 1, 1, 1), 1.5, BF16),
        {"kernel_shape": (64, 64)},
        name="summed-in-float32",
    ),
    Case(
        "AveragePool",
        11,
        [np.float32([[[2, 4, 6, 8]]])],
        np.float32([[[2, 3, 5, 7]]]),
        {"kernel_shape": (2,), "auto_pad": "SAME_LOWER"},
        name="same-lower",
    ),
]

NORMS = [
    lp_pool(1, "real", IMAGE, 2.5, **PADDED),
    Case("LpPool", 1, [IMAGE], in64(lambda x: direct.norm(x, 2, kernel=(9, 8))), name="image"),
    lp_pool(2, "euclid", IMAGE, **PADDED),
    lp_pool(2, "city", IMAGE, 1, **PADDED),
    lp_pool(11, "cube", VOLUME, 3, kernel_shape=(2, 3, 2)),
    lp_pool(18, "ceil", IMAGE, 3, ceil_mode=1, **SQUARE),
    lp_pool(18, "dilated", IMAGE, **DILATED),
    lp_pool(22, "double", np.float64(IMAGE), 4, **SQUARE),
]


def over_image(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return in64(lambda x: reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True))


def norm_over_image(p: float) -> Callable[..., Any]:
    return over_image(lambda x, **axes: np.sum(np.abs(x) ** p, **axes) ** (1 / p))


HALF = IMAGE.astype(np.float16)
WHOLE = [
    Case("GlobalAveragePool", 1, [IMAGE], over_image(np.mean)),
    Case("GlobalAveragePool", 1, [VOLUME], over_image(np.mean), name="volume"),
    Case("GlobalAveragePool", 22, [HALF], over_image(np.mean), rtol=1e-3, name="half"),
    Case(
        "GlobalAveragePool",
        22,
        [np.full((1, 1, 300, 300), 2, np.float16)],
        np.full((1,) * 4, 2, np.float16),
        name="long",
    ),
    Case("GlobalMaxPool", 1, [LINE], over_image(np.max)),
    Case("GlobalMaxPool", 22, [IMAGE.astype(BF16)], over_image(np.max)),
    Case("GlobalLpPool", 1, [IMAGE], norm_over_image(2.5), {"p": 2.5}),
    Case("GlobalLpPool", 1, [IMAGE], norm_over_image(2), name="default"),
    Case("GlobalLpPool", 2, [VOLUME], norm_over_image(3), {"p": 3}),
    Case("GlobalLpPool", 22, [LINE], norm_over_image(1), {"p": 1}),
    Case(
        "GlobalLpPool", 22, [np.full((1, 1, 300), 200, np.float16)], norm_over_image(2), name="half"
    ),
]


def regions(pooled: tuple[int, int], scale: float) -> Callable[..., Any]:
    def answer(x: Any, rois: Any) -> Any:
        y = np.zeros((len(rois), x.shape[1], *pooled), x.dtype)
        for r, (image, *corners) in enumerate(rois.tolist()):
            left, top, right, bottom = (int(np.floor(c * scale + 0.5)) for c in corners)
            tall, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
            for (i, j), h, w in itertools.product(
                np.ndindex(*pooled), range(x.shape[2]), range(x.shape[3])
            ):
                # Bin i covers [i, i + 1) * tall / pooled; pixel h - top covers one unit.
                in_row = (
                    i * tall < (h - top + 1) * pooled[0] and (h - top) * pooled[0] < (i + 1) * tall
                )
                in_column = (
                    j * wide < (w - left + 1) * pooled[1]
                    and (w - left) * pooled[1] < (j + 1) * wide
                )
                if in_row and in_column:
                    y[r, :, i, j] = np.maximum(y[r, :, i, j], x[int(image), :, h, w])
        return y

    return answer


POSITIVE = np.abs(draw(2, 3, 8, 9)) + 1
ROIS = np.float32([[0, 0, 0, 8, 7], [1, 2, 1, 6, 5], [1, 3, 3, 3, 3], [0, 6, 5, 12, 20]])
FINE = np.float32([[1, 0.6, 3, 13, 9.2], [0, 8, 8, 4, 4], [0, 5, 0, 7, 15]])
IN_REGIONS = [
    Case("MaxRoiPool", 1, [POSITIVE, ROIS], regions((2, 3), 1), {"pooled_shape": (2, 3)}),
    Case(
        "MaxRoiPool",
        22,
        [POSITIVE, FINE],
        regions((4, 2), 0.5),
        {"pooled_shape": (4, 2), "spatial_scale": 0.5},
    ),
    Case(
        "MaxRoiPool",
        22,
        [-np.arange(1, 10, dtype=np.float64).reshape(1, 1, 3, 3), np.float64([[0, 1, 1, 9, 2]])],
        np.float64([[[[-5, 0, 0], [-8, 0, 0]]]]),
        {"pooled_shape": (2, 3)},
        name="outside",
    ),
]

PLACES = np.int64([[[[1, 3], [8, 14]], [[16, 18], [25, 31]]]])
TOPS = np.float32([[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]])
UNPOOLED = np.zeros((1, 2, 4, 4), np.float32)
UNPOOLED.reshape(-1)[PLACES.reshape(-1)] = TOPS.reshape(-1)
TWO = {"kernel_shape": (2, 2), "strides": (2, 2)}
BACK = [
    Case("MaxUnpool", 9, [TOPS, PLACES], UNPOOLED, TWO),
    Case(
        "MaxUnpool",
        9,
        [TOPS, PLACES, np.int64([1, 2, 5, 5])],
        np.insert(
            np.zeros(42, np.float32), PLACES.reshape(-1) - range(8), TOPS.reshape(-1)
        ).reshape(1, 2, 5, 5),
        TWO,
        name="shape",
    ),
    Case(
        "MaxUnpool",
        11,
        [np.float32([[[1, 2, 3]]]), np.int64([[[0, 2, 4]]])],
        np.float32([[[1, 0, 2, 0, 3]]]),
        {"kernel_shape": (3,), "strides": (2,), "pads": (1, 1)},
        name="line-pads",
    ),
    Case(
        "MaxUnpool",
        11,
        [np.float32([[[1, 2]]]), np.int64([[[2, 3]]])],
        np.float32([[[0, 0, 1, 2]]]),
        {"kernel_shape": (3,)},
        name="overlap",
    ),
]

CASES = [*MAXIMA, *MEANS, *NORMS, *WHOLE, *IN_REGIONS, *BACK]
