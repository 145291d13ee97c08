"""Sampling images: GridSample, AffineGrid and RoiAlign, against loops over places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case
from formula import RNG


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def cubic(distance: float) -> float:
    d, a = abs(distance), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def mirrored(where: float, low: float, high: float) -> float:
    while not low <= where <= high:
        where = 2 * (low if where < low else high) - where
    return where


def along(place: float, n: int, mode: str, padding: str, align: bool) -> dict[int, float]:
    """The elements of an axis that a place in [-1, 1] reads, and their weights."""
    at = (place + 1) / 2 * (n - 1) if align else ((place + 1) * n - 1) / 2
    edges = (0, n - 1) if align else (-0.5, n - 0.5)
    if padding == "reflection" and mode != "cubic":
        at = mirrored(at, *edges)
    if padding != "zeros" and mode != "cubic":
        at = min(max(at, 0), n - 1)
    if mode == "nearest":
        found = {round(at): 1.0}
    else:
        near = range(math.floor(at) - 1, math.floor(at) + 3)
        found = {i: cubic(at - i) if mode == "cubic" else max(0, 1 - abs(at - i)) for i in near}
    inside: dict[int, float] = {}
    for i, weight in found.items():
        moved = mirrored(i, *edges) if padding == "reflection" else i
        moved = min(max(moved, 0), n - 1) if padding != "zeros" else moved
        if 0 <= moved < n:
            inside[int(moved)] = inside.get(int(moved), 0) + weight
    return inside


def sampled(mode: str, padding: str, align: bool) -> Callable[..., Any]:
    def answer(x: Any, grid: Any) -> Any:
        y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
        for n, *where in np.ndindex(grid.shape[:-1]):
            places = np.float64(grid[n, *where])[::-1]
            reads = [
                along(place, size, mode, padding, align).items()
                for place, size in zip(places, x.shape[2:], strict=True)
            ]
            for corner in itertools.product(*reads):
                weight = math.prod(w for _, w in corner)
                y[n, :, *where] += weight * x[n, :, *(i for i, _ in corner)]
        return y.astype(x.dtype)

    return answer


IMAGE, VOLUME = draw(2, 3, 4, 5), draw(1, 2, 3, 4, 2)
# Off the halves and wholes, where rounding decides which element is the nearest.
PLACES = RNG.uniform(-2.5, 2.5, (2, 3, 4, 2)).astype(np.float32)
VOLUME_PLACES = RNG.uniform(-1.5, 1.5, (1, 2, 3, 2, 3)).astype(np.float32)
PADDINGS, ALIGN = ("zeros", "border", "reflection"), (0, 1)


def grid_sample(version: int, x: Any, places: Any, mode: str, padding: str, align: int) -> Case:
    plain = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
    name = f"{mode}-{padding}-{align}-{places.shape[-1]}"
    answer = sampled(plain, padding, bool(align))
    return Case("GridSample", version, [x, places], answer, attributes, name=name, atol=1e-5)


SAMPLES = [
    grid_sample(16, IMAGE, PLACES, mode, padding, align)
    for mode in ("nearest", "bilinear", "bicubic")
    for padding in PADDINGS
    for align in ALIGN
] + [
    grid_sample(20, x, places, mode, padding, align)
    for x, places in ((IMAGE, PLACES), (VOLUME, VOLUME_PLACES))
    for mode in ("nearest", "linear", "cubic")
    for padding in PADDINGS
    for align in ALIGN
]

ROW = np.float32([[[10, 20, 30, 40]]])
LINE = [[[-1.0], [-0.5], [0.0], [0.75], [1.5], [math.nan], [math.inf]]]
ODD = [
    Case(
        "GridSample",
        20,
        [ROW, np.float32(LINE)],
        np.float32([[[5, 15, 25, 40, 0, 0, 0]]]),
        name="line",
    ),
    Case(
        "GridSample",
        22,
        [ROW, np.float32(LINE)],
        np.float32([[[10, 15, 25, 40, 40, 10, 40]]]),
        {"padding_mode": "border"},
        name="line-border",
    ),
    Case(
        "GridSample",
        22,
        [ROW.astype(np.int16), np.float32(LINE)],
        np.int16([[[5, 15, 25, 40, 0, 0, 0]]]),
        name="integers",
    ),
    Case(
        "GridSample",
        22,
        [np.array([[["a", "b"]]], object), np.float32([[[0.5], [-0.5], [9]]])],
        np.array([[["b", "a", ""]]], object),
        {"mode": "nearest"},
        name="words",
    ),
]


def affine(align: bool) -> Callable[..., Any]:
    def answer(theta: Any, size: Any) -> Any:
        shape = tuple(size[2:])
        y = np.empty((len(theta), *shape, len(shape)))
        for n, *where in np.ndindex(y.shape[:-1]):
            pairs = zip(where, shape, strict=True)
            place = [2 * i / (k - 1) - 1 if align else (2 * i + 1) / k - 1 for i, k in pairs]
            y[n, *where] = np.float64(theta[n]) @ [*place[::-1], 1]
        return y.astype(theta.dtype)

    return answer


AFFINE = [
    Case(
        "AffineGrid",
        20,
        [theta, size],
        affine(bool(align)),
        {"align_corners": align},
        name=f"{len(size)}-{align}",
    )
    for theta, size in (
        (draw(2, 2, 3), np.int64([2, 1, 3, 4])),
        (draw(1, 3, 4), np.int64([1, 2, 2, 3, 4])),
    )
    for align in ALIGN
]


def element(image: Any, y: float, x: float) -> list[Any]:
    """Return the contributions of the four elements around a place."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return [np.zeros(len(image))]
    return [
        share_y * share_x * np.float64(image[:, i, j])
        for i, share_y in pair(y, height)
        for j, share_x in pair(x, width)
    ]


def pair(place: float, n: int) -> list[tuple[int, float]]:
    """The element before a place and the next one, which counts even with a share of nothing."""
    place = min(max(place, 0), n - 1)
    low = math.floor(place)
    return [(low, low + 1 - place), (min(low + 1, n - 1), place - low)]


def aligned(shift: float, scale: float, bins: int, ratio: int, mode: str, least: float) -> Any:
    def answer(x: Any, rois: Any, images: Any) -> Any:
        out = np.zeros((len(rois), x.shape[1], bins, bins))
        for r, (roi, image) in enumerate(
            zip(np.float64(rois) * scale - shift, images, strict=True)
        ):
            height, width = max(roi[3] - roi[1], least), max(roi[2] - roi[0], least)
            tall, wide = ratio or math.ceil(height / bins), ratio or math.ceil(width / bins)
            for i, j in np.ndindex(bins, bins):
                found = [
                    element(
                        x[image],
                        roi[1] + height / bins * (i + (u + 0.5) / tall),
                        roi[0] + width / bins * (j + (v + 0.5) / wide),
                    )
                    for u, v in np.ndindex(tall, wide)
                ]
                if mode == "avg":
                    out[r, :, i, j] = np.mean([np.sum(parts, axis=0) for parts in found], axis=0)
                else:
                    out[r, :, i, j] = np.max([np.max(parts, axis=0) for parts in found], axis=0)
        return out.astype(x.dtype)

    return answer


PICTURES, IMAGES = draw(2, 3, 7, 9), np.int64([0, 1, 1, 0])
# Inside, beyond a corner, smaller than an element, and wholly outside.
ROIS = np.float32(
    [[1.1, 2.3, 7.7, 6.2], [-4.3, -3.1, 4.2, 3.4], [3.1, 3.2, 3.4, 3.5], [30, 30, 40, 45]]
)
REGIONS = [
    Case(
        "RoiAlign",
        version,
        [PICTURES, ROIS, IMAGES],
        aligned(shift, scale, 3, ratio, mode, 0 if shift else 1),
        {
            "mode": mode,
            "sampling_ratio": ratio,
            "spatial_scale": scale,
            "output_height": 3,
            "output_width": 3,
        },
        name=f"{mode}-{ratio}-{scale}",
        atol=1e-5,
    )
    for version, shift in ((10, 0.0), (16, 0.5))
    for mode in ("avg", "max")
    for ratio in (0, 2)
    for scale in (1.0, 0.5)
] + [
    Case(
        "RoiAlign",
        16,
        [PICTURES, ROIS[:0], IMAGES[:0]],
        np.zeros((0, 3, 1, 1), np.float32),
        name="none",
    ),
]

CASES = SAMPLES + ODD + AFFINE + REGIONS
