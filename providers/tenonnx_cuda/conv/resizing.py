"""Resize of images in one launch, by tables that are brought to the device once for each shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.resize import readings_of
from tenonnx_cuda.capture.tracer import hold
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.kernel_selection import Call, Site, Target, choose, same_element
from tenonnx_cuda.platform import NDArray
from tenonnx_cuda.sources import THREADS_PER_BLOCK, blocks

ATTRIBUTES = (
    "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
    "keep_aspect_ratio_policy", "mode", "nearest_mode",
)  # fmt: skip

# Tables that a call keeps on the device.
MOST_TABLES: Final = 64

# An image's shape, scales and sizes.
Key: TypeAlias = tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Tables:
    """The sources of a result's lines and columns.

    Attributes:
        output: Its height and width.
        taps: How many lines, and columns, are summed for each.
        arrays: On the device: their numbers and weights, for lines and for columns.
    """

    output: tuple[int, int]
    taps: tuple[int, int]
    arrays: tuple[Array, ...]


@choose("Resize")
def resize(site: Site, plain: Call) -> Call | None:
    """Resize along the last two axes, other than of a region."""
    given = {name: site.attribute(name, None) for name in ATTRIBUTES}
    attributes: dict[str, Any] = {
        name: tuple(value) if name == "axes" else value
        for name, value in given.items()
        if value is not None
    }
    mode = attributes.get("coordinate_transformation_mode")
    if site.version < 11 or mode == "tf_crop_and_resize":
        return None
    return Resizing(site.target, plain, attributes, layouts.may_choose(site.node))


@dataclass(frozen=True, eq=False)
class Resizing:
    """A call of Resize, with the tables of the shapes that it has seen.

    Attributes:
        target: The device.
        plain: Takes what the kernel does not.
        attributes: Of the node.
        free: Whether the result may have its channels last.
        tables: By shape, scales and sizes; ``None`` for those that the kernel does not take.
    """

    target: Target
    plain: Call
    attributes: Mapping[str, Any]
    free: bool
    tables: dict[Key, Tables | None] = field(default_factory=dict)

    def __call__(
        self, X: Array, roi: Any = None, scales: NDArray | None = None, sizes: NDArray | None = None
    ) -> Array:
        """Return an image of another size."""
        element = same_element(X)
        by = () if scales is None else tuple(scales.tolist())
        to = () if sizes is None else tuple(sizes.tolist())
        fits = element is not None and X.ndim in (3, 4) and X.size and bool(by) != bool(to)
        made = self._tables((tuple(X.shape), by, to)) if fits else None
        if made is None or not math.prod(made.output):
            return self.plain(X, roi, scales, sizes)
        hold(*made.arrays)
        xp = self.target.xp
        last = self.free and X.ndim == 4 and layouts.has_channels_last(X) is True
        x = layouts.with_channels(xp, X, at_end=last)
        y = layouts.empty(xp, (*X.shape[:-2], *made.output), X.dtype, at_end=last)
        sizes_ = (X.shape[1], *X.shape[-2:], *made.output, *made.taps)
        launch = self.target.kernel("conv/resize", "resize", T=element, LAST=int(last))
        numbers = (np.int64(y.size), *map(np.int32, sizes_))
        launch(blocks(y.size), (THREADS_PER_BLOCK,), (x, y, *made.arrays, *numbers))
        return y

    def _tables(self, key: Key) -> Tables | None:
        try:
            return self.tables[key]
        except KeyError:
            if len(self.tables) >= MOST_TABLES:
                self.tables.clear()
            made = tables_of(self.target, self.attributes, *key)
            return self.tables.setdefault(key, made)


def tables_of(
    target: Target,
    attributes: Mapping[str, Any],
    shape: tuple[int, ...],
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
) -> Tables | None:
    """Return an image's tables; ``None`` if another axis than its last two changes."""
    asked = np.array(scales, np.float32) if scales else None, np.array(sizes) if sizes else None
    image = np.broadcast_to(np.float32(0), shape)
    along, _ = readings_of(np, image, None, *asked, **attributes)
    if not along or min(along) < len(shape) - 2:
        return None
    pairs = [_read(along.get(axis), shape[axis]) for axis in (len(shape) - 2, len(shape) - 1)]
    arrays = tuple(target.platform.to_device(a) for pair in pairs for a in pair)
    (height, taps_h), (width, taps_w) = (places.shape for places, _ in pairs)
    return Tables((height, width), (taps_h, taps_w), arrays)


def _read(reading: Any, length: int) -> tuple[NDArray, NDArray]:
    """Return places and weights, both (length, taps); of an axis that stays, its own."""
    places, weights = (np.arange(length), None) if reading is None else reading
    places = np.atleast_2d(places)
    weights = np.ones(places.shape) if weights is None else weights
    return tuple(  # type: ignore[return-value]  # two
        np.ascontiguousarray(a.T, kind)
        for a, kind in zip((places, weights), (np.int32, np.float32), strict=True)
    )
