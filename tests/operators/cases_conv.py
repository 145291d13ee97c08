"""Convolutions at versions, ranks and attributes that the backend suite leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import direct
import ml_dtypes
import numpy as np
from case import Case
from formula import RNG

BF16 = ml_dtypes.bfloat16
EXACT = {"rtol": 0.0, "atol": 0.0}


def draw(*shape: int) -> Any:
    """Small whole numbers: sums of their products are exact, in whatever order."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def quarters(*shape: int) -> Any:
    return RNG.integers(-12, 13, shape).astype(np.float32) / 4


def integers(dtype: Any, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def rounded(function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    return lambda x, *inputs: function(x, *inputs, **given).astype(x.dtype)


def conv(version: int, name: str, inputs: list[Any], attributes: Any) -> Case:
    geometry = {"kernel": inputs[1].shape[2:]} | attributes
    answer = rounded(direct.convolve, **geometry)
    return Case("Conv", version, inputs, answer, attributes, name=name, **EXACT)


def same(version: int, name: str, inputs: list[Any], auto_pad: str, pads: Any, **rest: Any) -> Case:
    """A case of ``auto_pad``, and the padding that it means."""
    answer = conv(version, name, inputs, {"pads": pads, **rest}).expected
    return Case("Conv", version, inputs, answer, {"auto_pad": auto_pad, **rest}, name=name, **EXACT)


IMAGE = draw(2, 4, 9, 8)
CONVOLUTIONS = [
    conv(1, "bias", [IMAGE, draw(3, 4, 3, 2), draw(3)], {}),
    conv(1, "pads", [IMAGE, draw(3, 4, 3, 3)], {"pads": (1, 0, 2, 3), "strides": (2, 3)}),
    conv(11, "line", [draw(2, 3, 17), draw(5, 3, 4), draw(5)], {"dilations": (3,), "pads": (4, 1)}),
    conv(
        11,
        "volume",
        [draw(2, 2, 5, 6, 7), draw(3, 2, 2, 3, 3), draw(3)],
        {"strides": (2, 1, 3), "dilations": (2, 1, 2), "pads": (1, 0, 2, 0, 1, 2)},
    ),
    conv(11, "groups", [IMAGE, draw(6, 2, 3, 3), draw(6)], {"group": 2, "pads": (1, 1, 1, 1)}),
    conv(11, "depthwise", [IMAGE, draw(4, 1, 3, 3), draw(4)], {"group": 4, "strides": (2, 2)}),
    conv(11, "multiplier", [IMAGE, draw(8, 1, 5, 5)], {"group": 4, "pads": (2, 2, 2, 2)}),
    conv(11, "pointwise", [IMAGE, draw(5, 4, 1, 1), draw(5)], {}),
    conv(11, "pointwise-strided", [IMAGE, draw(5, 4, 1, 1)], {"strides": (2, 3)}),
    conv(11, "pointwise-groups", [IMAGE, draw(6, 2, 1, 1)], {"group": 2}),
    conv(11, "pointwise-padded", [IMAGE, draw(5, 4, 1, 1), draw(5)], {"pads": (1, 2, 0, 1)}),
    conv(11, "whole", [IMAGE, draw(5, 4, 9, 8), draw(5)], {}),
    conv(11, "whole-groups", [IMAGE, draw(6, 2, 9, 8)], {"group": 2}),
    conv(11, "wider-than-data", [draw(1, 2, 3, 3), draw(2, 2, 5, 5)], {"pads": (2, 2, 2, 2)}),
    conv(11, "mostly-padding", [draw(1, 2, 2, 2), draw(2, 2, 2, 2)], {"pads": (3, 3, 1, 1)}),
    conv(11, "patches", [draw(2, 3, 32, 32), draw(16, 3, 8, 8)], {"strides": (8, 8)}),
    conv(11, "in-blocks", [draw(2, 20, 80, 80), draw(2, 20, 5, 5)], {"pads": (2, 2, 2, 2)}),
    conv(
        11,
        "groups-in-blocks",
        [draw(2, 24, 64, 64), draw(24, 1, 7, 7)],
        {"group": 24, "pads": (3, 3, 3, 3)},
    ),
    conv(22, "double", [np.float64(draw(2, 3, 8, 8)), np.float64(draw(2, 3, 3, 3))], {}),
    conv(
        22,
        "half",
        [IMAGE.astype(np.float16), draw(5, 4, 3, 3).astype(np.float16)],
        {"pads": (1, 1, 1, 1)},
    ),
    conv(
        22,
        "bfloat16",
        [IMAGE.astype(BF16), draw(5, 4, 3, 3).astype(BF16), draw(5).astype(BF16)],
        {"strides": (2, 2)},
    ),
    same(1, "valid", [IMAGE, draw(3, 4, 3, 3)], "VALID", (0, 0, 0, 0), strides=(2, 2)),
    same(11, "lower", [IMAGE, draw(3, 4, 4, 3)], "SAME_LOWER", (2, 1, 1, 1)),
    same(11, "upper", [IMAGE, draw(3, 4, 4, 3)], "SAME_UPPER", (0, 0, 1, 1), strides=(3, 2)),
    same(
        11,
        "upper-dilated",
        [IMAGE, draw(3, 4, 2, 2)],
        "SAME_UPPER",
        (1, 1, 2, 2),
        dilations=(3, 3),
    ),
    Case("Conv", 11, [draw(0, 4, 9, 8), draw(3, 4, 3, 3)], draw(0, 3, 7, 6), name="no-images"),
    Case(
        "Conv", 11, [draw(1, 0, 4, 4), draw(2, 0, 3, 3)], np.zeros((1, 2, 2, 2), "f"), name="none"
    ),
]


def transpose(
    version: int, name: str, inputs: list[Any], size: Any, pads: Any, attributes: Any
) -> Case:
    """A case whose result has this size; ``pads`` are what the attributes mean."""
    kept = {n: v for n, v in attributes.items() if n in ("strides", "dilations", "group")}
    answer = rounded(direct.transpose, size=size, pads=pads, **kept)
    return Case("ConvTranspose", version, inputs, answer, attributes, name=name, **EXACT)


SMALL = draw(2, 4, 3, 4)
THREE = draw(4, 2, 3, 3)
TRANSPOSED = [
    transpose(1, "plain", [SMALL, THREE, draw(2)], (5, 6), None, {}),
    transpose(11, "kernel", [SMALL, THREE], (5, 6), None, {"kernel_shape": (3, 3)}),
    transpose(
        11,
        "geometry",
        [SMALL, THREE, draw(2)],
        (9, 15),
        (1, 0, 0, 2),
        {
            "strides": (3, 4),
            "dilations": (1, 2),
            "pads": (1, 0, 0, 2),
            "output_padding": (1, 0),
        },
    ),
    transpose(11, "groups", [SMALL, THREE, draw(4)], (7, 9), None, {"group": 2, "strides": (2, 2)}),
    transpose(11, "depthwise", [SMALL, draw(4, 1, 2, 2)], (4, 5), None, {"group": 4}),
    transpose(11, "line", [draw(2, 3, 5), draw(3, 2, 4)], (12,), None, {"strides": (2,)}),
    transpose(
        11,
        "volume",
        [draw(1, 2, 2, 3, 2), draw(2, 3, 2, 2, 3)],
        (3, 5, 4),
        (0, 1, 0, 0, 0, 1),
        {"strides": (1, 2, 2), "pads": (0, 1, 0, 0, 0, 1)},
    ),
    transpose(
        11,
        "shape",
        [SMALL, THREE],
        (8, 10),
        (1, 2, 0, 1),
        {"strides": (3, 3), "output_shape": (8, 10), "output_padding": (0, 1)},
    ),
    transpose(
        11,
        "shape-upper",
        [SMALL, THREE],
        (8, 10),
        (0, 1, 1, 1),
        {"strides": (3, 3), "output_shape": (8, 10), "auto_pad": "SAME_UPPER"},
    ),
    transpose(
        11,
        "upper",
        [SMALL, THREE],
        (6, 8),
        (0, 0, 1, 1),
        {"strides": (2, 2), "auto_pad": "SAME_UPPER"},
    ),
    transpose(
        11,
        "lower",
        [SMALL, THREE],
        (6, 8),
        (1, 1, 0, 0),
        {"strides": (2, 2), "auto_pad": "SAME_LOWER"},
    ),
    transpose(11, "valid", [SMALL, THREE], (7, 9), None, {"strides": (2, 2), "auto_pad": "VALID"}),
    transpose(11, "in-blocks", [draw(5, 16, 32, 32), draw(16, 8, 4, 4)], (35, 35), None, {}),
    transpose(22, "half", [SMALL.astype(np.float16), THREE.astype(np.float16)], (5, 6), None, {}),
]


def integer(x: Any, w: Any, x_zero: Any = 0, w_zero: Any = 0, **geometry: Any) -> Any:
    w_zero = np.reshape(np.int64(w_zero), (-1, *(1,) * (w.ndim - 1)))
    shifted = np.int64(x) - np.int64(x_zero)
    return direct.convolve(shifted, np.int64(w) - w_zero, kernel=w.shape[2:], **geometry)


def conv_integer(name: str, inputs: list[Any], **attributes: Any) -> Case:
    def answer(*given: Any) -> Any:
        return integer(*given, **attributes).astype(np.int32)

    return Case("ConvInteger", 10, inputs, answer, attributes, name=name)


def qlinear(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = 0,
    **geometry: Any,
) -> Any:
    def by_channel(value: Any) -> Any:
        return np.reshape(np.float64(value), (-1, *(1,) * (x.ndim - 2)))

    y = integer(x, w, x_zero, w_zero, **geometry) + by_channel(bias)
    scaled = np.rint(y * np.float64(x_scale) * by_channel(w_scale) / np.float64(y_scale)) + y_zero
    info = np.iinfo(y_zero.dtype)
    return np.clip(scaled, info.min, info.max).astype(y_zero.dtype)


def qlinear_conv(name: str, operands: list[Any], *result: Any, **attributes: Any) -> Case:
    def answer(*given: Any) -> Any:
        return qlinear(*given, **attributes)

    return Case("QLinearConv", 10, [*operands, *result], answer, attributes, name=name)


HALF = np.array(0.5, np.float32)
MIDDLE = np.uint8([128])
BYTES = integers(np.uint8, 2, 4, 7, 6)
SIGNED = integers(np.int8, 6, 2, 3, 3)
UNITS = np.float32([0.5, 0.25, 1, 2, 0.125, 4]) / 64
QUANTIZED = [
    conv_integer("bare", [BYTES, integers(np.uint8, 3, 4, 2, 2)]),
    conv_integer("padded", [BYTES, integers(np.int8, 3, 4, 3, 3), np.uint8(7)], pads=(1, 2, 0, 1)),
    conv_integer(
        "channels",
        [BYTES, SIGNED, np.uint8(200), np.int8([-128, -1, 0, 1, 2, 127])],
        group=2,
        strides=(2, 1),
    ),
    conv_integer("line", [integers(np.int8, 1, 3, 9), integers(np.int8, 2, 3, 3), np.int8(-3)]),
    conv_integer("long", [np.full((1, 600, 3, 3), 255, "u1"), np.full((1, 600, 3, 3), 255, "u1")]),
    qlinear_conv(
        "tensors",
        [BYTES, HALF, np.uint8(128), integers(np.int8, 3, 4, 3, 3), HALF, np.int8(3)],
        np.float32(64),
        np.uint8(100),
        pads=(1, 1, 1, 1),
    ),
    qlinear_conv(
        "channels",
        [BYTES, HALF, np.uint8(17), SIGNED, UNITS, np.int8([0, 1, -2, 3, -4, 5])],
        np.float32(4),
        np.int8(-5),
        integers(np.int32, 6) >> 18,
        group=2,
        strides=(2, 2),
        dilations=(2, 1),
    ),
    qlinear_conv(
        "vectors-of-one",
        [BYTES, HALF[None], np.uint8([3]), integers(np.uint8, 3, 4, 1, 1), HALF[None], MIDDLE],
        np.float32([8]),
        np.uint8([10]),
    ),
]


def folded(size: Any, kernel: Any, output: Any, **geometry: Any) -> Callable[..., Any]:
    def answer(columns: Any, *_: Any) -> Any:
        shape = (columns.shape[0], -1, *kernel, *output)
        return direct.scatter(columns.reshape(shape), size, **geometry)

    return answer


def col2im(name: str, columns: Any, size: Any, kernel: Any, output: Any, **geometry: Any) -> Case:
    inputs = [columns, np.int64(size), np.int64(kernel)]
    answer = folded(size, kernel, output, **geometry)
    return Case("Col2Im", 18, inputs, answer, geometry, name=name)


FOLDED = [
    col2im("overlap", draw(2, 18, 12), (5, 6), (3, 3), (3, 4)),
    col2im("pads", draw(2, 12, 12), (5, 6), (3, 2), (3, 4), strides=(2, 2), pads=(1, 1, 1, 1)),
    col2im("dilated", integers(np.int32, 1, 8, 6), (4, 5), (2, 2), (2, 3), dilations=(2, 2)),
    col2im("line", np.float64([[[1, np.nan], [0, 3], [5, np.inf]]]), (4,), (3,), (2,)),
    col2im("long", integers(np.int64, 1, 8, 6), (6, 4), (2, 2), (2, 3), strides=(3, 1)),
    col2im("floats", np.ones((2, 8, 8), np.float32) / 3, (3, 3, 3), (2, 2, 2), (2, 2, 2)),
    col2im("volume", integers(np.uint8, 1, 8, 8), (3, 3, 3), (2, 2, 2), (2, 2, 2)),
]


def deform(version: int, name: str, inputs: list[Any], **attributes: Any) -> Case:
    rank = inputs[0].ndim - 2
    plain = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads": (0,) * (2 * rank)}

    def answer(x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
        y = direct.deform(x, w, offset, mask, **plain | attributes)
        y += 0 if bias is None else bias.reshape(-1, *(1,) * rank)
        return y.astype(x.dtype)

    return Case("DeformConv", version, inputs, answer, attributes, name=name, **EXACT)


DEFORMED = [
    deform(19, "plain", [draw(1, 2, 5, 5), draw(3, 2, 2, 2), quarters(1, 8, 4, 4)]),
    deform(
        22,
        "everything",
        [draw(2, 4, 6, 5), draw(6, 2, 3, 2), quarters(2, 24, 3, 3), draw(6), draw(2, 12, 3, 3)],
        group=2,
        offset_group=2,
        strides=(2, 2),
        dilations=(1, 2),
        pads=(1, 1, 0, 1),
    ),
    deform(
        22,
        "shared",
        [draw(1, 4, 4, 4), draw(4, 1, 2, 2), quarters(1, 16, 3, 3), None, draw(1, 8, 3, 3)],
        group=4,
        offset_group=2,
    ),
    deform(22, "line", [draw(2, 2, 9), draw(2, 2, 3), quarters(2, 3, 7), draw(2)]),
    deform(22, "volume", [draw(1, 1, 3, 3, 3), draw(1, 1, 2, 2, 2), quarters(1, 24, 2, 2, 2)]),
]

CASES = [*CONVOLUTIONS, *TRANSPOSED, *QUANTIZED, *FOLDED, *DEFORMED]
