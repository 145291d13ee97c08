"""Resize and Upsample at versions and attributes that the backend suite leaves out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case
from formula import RNG

X = RNG.standard_normal((1, 2, 5, 8)).astype(np.float32)
BYTES = np.uint8([[[[0, 100, 255], [100, 100, 100], [7, 0, 255]]]])
WORDS = np.array([["a", "b"], ["c", "d"]], object)
NONE = np.zeros(0, np.float32)

Coordinate = Callable[[int, int, int, float], float]
"""Of an element's number, the two lengths and the scale."""

COORDINATES: dict[str, Coordinate] = {
    "half_pixel": lambda x, _old, _new, scale: (x + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda x, _old, new, s: (x + 0.5) / s - 0.5 if new > 1 else 0,
    "align_corners": lambda x, old, new, _scale: x * (old - 1) / (new - 1) if new > 1 else 0,
    "asymmetric": lambda x, _old, _new, scale: x / scale,
    "tf_half_pixel_for_nn": lambda x, _old, _new, scale: (x + 0.5) / scale,
}
ROUNDINGS = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def triangle(distance: float) -> float:
    return max(0.0, 1 - abs(distance))


def cubic(distance: float, a: float) -> float:
    d = abs(distance)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def matrix(
    old: int, new: int, scale: float, weigh: Callable[[float], dict[int, float]], at: Coordinate
) -> Any:
    """Return the weights of the old elements for every new one; outside, the border counts."""
    m = np.zeros((new, old))
    for row in range(new):
        for where, weight in weigh(at(row, old, new, scale)).items():
            m[row, min(max(where, 0), old - 1)] += weight
    return m


def around(kernel: Callable[[float], float], stretch: float = 1, *, within: int = 0) -> Any:
    """Weights of the elements near a place; of those within a length alone if it is given."""

    def weigh(place: float) -> dict[int, float]:
        near = range(math.floor(place) - 30, math.floor(place) + 31)
        found = {i: kernel((i - place) / stretch) for i in near if not within or 0 <= i < within}
        total = sum(found.values())
        return {i: weight / total for i, weight in found.items()}

    return weigh


def resized(sizes: Any, scales: Any, weigh: Any, at: Coordinate) -> Callable[..., Any]:
    """The answer for an axis after the other; ``weigh`` is told a length and a scale."""

    def answer(x: Any, *_rest: Any) -> Any:
        y = np.float64(x)
        for axis, (old, new, scale) in enumerate(zip(x.shape, sizes, scales, strict=True)):
            if old != new or scale != 1:
                m = matrix(old, new, scale, weigh(old, scale), at)
                y = np.moveaxis(np.tensordot(m, y, (1, axis)), 0, axis)
        return y.astype(x.dtype)

    return answer


def scaled(
    op: str, version: int, x: Any, scales: list[float], weigh: Any, at: str, **attributes: Any
) -> Case:
    """A case with scales, laid out as the version takes them."""
    sizes = [math.floor(n * np.float32(s)) for n, s in zip(x.shape, scales, strict=True)]
    answer = resized(sizes, scales, weigh, COORDINATES[at])
    given = np.float32(scales)
    inputs = {10: [x, given], 11: [x, NONE, given]}.get(version, [x, None, given])
    if op == "Upsample":
        inputs = [x, given] if version > 7 else [x]
        attributes |= {"scales": tuple(scales)} if version == 7 else {}
    if version == 1:
        attributes |= {"height_scale": scales[2], "width_scale": scales[3]}
    name = "-".join([*filter(lambda v: isinstance(v, str), attributes.values()), at])
    return Case(op, version, inputs, answer, attributes, name=name)


def sized(version: int, x: Any, sizes: list[int], weigh: Any, at: str, **attributes: Any) -> Case:
    scales = [new / old for new, old in zip(sizes, x.shape, strict=True)]
    answer = resized(sizes, scales, weigh, COORDINATES[at])
    inputs = [x, NONE if version == 11 else None, NONE if version == 11 else None, np.int64(sizes)]
    attributes |= {"coordinate_transformation_mode": at}
    name = "-".join(["sizes", *(str(value) for value in attributes.values())])
    return Case("Resize", version, inputs, answer, attributes, name=name)


def nearest(rounding: str) -> Any:
    return lambda _old, _scale: lambda place: {ROUNDINGS[rounding](place): 1.0}


def before_opset_11(_old: int, scale: float) -> Any:
    return nearest("ceil" if scale < 1 else "floor")(_old, scale)


def smooth(
    kernel: Callable[[float], float], *, exclude: bool = False, antialias: bool = False
) -> Any:
    return lambda old, scale: around(
        kernel, max(1, 1 / scale) if antialias else 1, within=old if exclude else 0
    )


LINEAR, KEYS, SHARP = (
    smooth(triangle),
    functools.partial(cubic, a=-0.75),
    functools.partial(cubic, a=-0.5),
)
UP, DOWN = [1.0, 1.0, 2.5, 1.5], [1.0, 1.0, 0.5, 0.6]
SMALLER, LARGER = [1, 2, 3, 4], [1, 2, 9, 11]
FLOOR = {"mode": "nearest", "nearest_mode": "floor"}
SHORT = {"coordinate_transformation_mode": "asymmetric"}
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}

OLD = (
    [
        scaled(
            "Upsample",
            version,
            X,
            [1.0, 1.0, 2.0, 3.0],
            nearest("floor"),
            "asymmetric",
            mode="nearest",
        )
        for version in (1, 7, 9, 10)
    ]
    + [
        scaled("Upsample", version, X, UP, LINEAR, "asymmetric", mode=mode)
        for version, mode in ((1, "bilinear"), (7, "linear"), (9, "linear"), (10, "linear"))
    ]
    + [
        scaled("Resize", 10, X, scales, weigh, "asymmetric", mode=mode)
        for scales in (UP, DOWN)
        for mode, weigh in (("nearest", before_opset_11), ("linear", LINEAR))
    ]
)

NEAREST = [
    sized(11, X, sizes, nearest(rounding), at, nearest_mode=rounding)
    for sizes in (SMALLER, LARGER)
    for rounding in ROUNDINGS
    for at in ("half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
]

SMOOTH = (
    [
        sized(13, X, sizes, weigh, at, mode=mode)
        for sizes in (SMALLER, LARGER, [1, 2, 1, 1])
        for mode, weigh in (("linear", LINEAR), ("cubic", smooth(KEYS)))
        for at in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    ]
    + [
        scaled(
            "Resize",
            13,
            X,
            [1.0, 1.0, 2.3, 1.7],
            weigh,
            "align_corners",
            coordinate_transformation_mode="align_corners",
            mode=mode,
        )
        for mode, weigh in (
            ("linear", LINEAR),
            ("cubic", smooth(KEYS)),
            ("nearest", nearest("round_prefer_floor")),
        )
    ]
    + [
        scaled("Resize", 11, X, UP, LINEAR, "half_pixel", mode="linear"),
        scaled("Resize", 13, X, DOWN, smooth(KEYS), "half_pixel", mode="cubic"),
        # As many elements as before, between the others: onnxruntime returns them as they are.
        scaled("Resize", 13, X, [1.0, 1.0, 1.1, 1.1], smooth(KEYS), "half_pixel", mode="cubic"),
        sized(13, X, LARGER, smooth(SHARP), "half_pixel", mode="cubic", cubic_coeff_a=-0.5),
        sized(
            13, X, LARGER, smooth(KEYS, exclude=True), "half_pixel", mode="cubic", exclude_outside=1
        ),
        sized(
            18,
            X,
            SMALLER,
            smooth(triangle, antialias=True),
            "half_pixel",
            mode="linear",
            antialias=1,
        ),
        sized(
            18, X, SMALLER, smooth(KEYS, antialias=True), "half_pixel", mode="cubic", antialias=1
        ),
        sized(18, X, LARGER, LINEAR, "half_pixel", mode="linear", antialias=1),
    ]
)

BY_HAND = [
    Case(
        "Resize",
        18,
        [np.float32([[1, 2, 3, 4], [5, 6, 7, 8]]), None, np.float32([2])],
        np.float32([[1, 1, 2, 2, 3, 3, 4, 4], [5, 5, 6, 6, 7, 7, 8, 8]]),
        {"axes": (-1,), "nearest_mode": "floor", **SHORT},
        name="last-axis",
    ),
    Case(
        "Resize",
        18,
        [np.zeros((1, 4, 6), np.float32), None, None, np.int64([3, 3])],
        np.zeros((1, 2, 3), np.float32),
        {"axes": (1, 2), "keep_aspect_ratio_policy": "not_larger"},
        name="not-larger",
    ),
    Case(
        "Resize",
        18,
        [np.zeros((1, 4, 6), np.float32), None, None, np.int64([3, 3])],
        np.zeros((1, 3, 5), np.float32),
        {"axes": (1, 2), "keep_aspect_ratio_policy": "not_smaller"},
        name="not-smaller-half-up",
    ),
    # The region from element 1 to element 3, and from one before the first to the last but one.
    Case(
        "Resize",
        11,
        [np.float32([10, 20, 30, 40, 50]), np.float32([0.25, 0.75]), NONE, np.int64([5])],
        np.float32([20, 25, 30, 35, 40]),
        {"mode": "linear", **CROP},
        name="crop",
    ),
    Case(
        "Resize",
        13,
        [np.float32([10, 20, 30, 40, 50]), np.float32([-0.25, 0.75]), None, np.int64([5])],
        np.float32([9, 10, 20, 30, 40]),
        {"mode": "nearest", **CROP},
        name="crop-beyond",
    ),
    Case(
        "Resize",
        18,
        [np.float32([[1, 2], [3, 4]]), np.float32([0.5, 0.5]), None, np.int64([1])],
        np.float32([[1.5], [3.5]]),
        {"axes": (1,), "mode": "linear", **CROP},
        name="crop-one",
    ),
    # The size is that of the whole axis; the region is spread over it.
    Case(
        "Resize",
        11,
        [np.float32([10, 20, 30, 40, 50]), np.float32([0.25, 0.75]), np.float32([1])],
        np.float32([20, 25, 30, 35, 40]),
        {"mode": "linear", **CROP},
        name="crop-scales",
    ),
    # 2.4 elements are two, which are the first and the last.
    Case(
        "Resize",
        19,
        [np.float32([1, 2, 3, 4]), None, np.float32([0.6])],
        np.float32([1, 4]),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        name="corners-shrink",
    ),
    # Three pairs of seven elements: the row is centered, where half_pixel begins at 0.5.
    Case(
        "Resize",
        19,
        [np.float32([0, 1, 2, 3, 4, 5, 6]), None, np.float32([0.5])],
        np.float32([1, 3, 5]),
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
        name="symmetric",
    ),
    Case(
        "Resize",
        13,
        [BYTES, None, None, np.int64([1, 1, 3, 5])],
        np.uint8([[[[0, 50, 100, 177, 255], [100] * 5, [7, 3, 0, 127, 255]]]]),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        name="bytes-truncate",
    ),
    Case(
        "Resize",
        13,
        [np.uint8([[0, 0, 255, 255]]), None, None, np.int64([1, 7])],
        np.uint8([[0, 0, 0, 127, 255, 255, 255]]),
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        name="bytes-clip",
    ),
    Case(
        "Resize",
        13,
        [WORDS, None, np.float32([1, 2])],
        np.array([["a", "a", "b", "b"], ["c", "c", "d", "d"]], object),
        {"nearest_mode": "floor", **SHORT},
        name="words",
    ),
    Case("Resize", 13, [X, None, None, np.int64([1, 2, 5, 8])], X, {"mode": "cubic"}, name="same"),
    Case(
        "Resize",
        13,
        [X, None, np.float32([1, 1, 0.1, 1])],
        X[:, :, :0],
        {"mode": "linear"},
        name="empty",
    ),
]

CASES = OLD + NEAREST + SMOOTH + BY_HAND
