"""Convolution and pooling as loops over windows, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np


def patches(
    x: Any,
    kernel: Any,
    strides: Any = None,
    dilations: Any = None,
    pads: Any = None,
    *,
    ceil: bool = False,
    fill: float = 0,
    beyond: float = np.nan,
) -> Iterator[tuple[Any, Any]]:
    """Each window's place in the output, and what it reads of x.

    Padding reads as ``fill``; what lies outside even of it, as ``beyond``.
    """
    rank = len(kernel)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    sides = list(zip(pads[:rank], pads[rank:], strict=True)) if pads else [(0, 0)] * rank
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padded = np.pad(np.float64(x), [(0, 0), (0, 0), *sides], constant_values=fill)
    # A last window of ceil mode may reach beyond the padding, but does not start in it.
    starts = [
        [s for s in range(0, n + begin, step) if s + reach < total + step]
        if ceil
        else range(0, total - reach + 1, step)
        for n, (begin, _), step, reach, total in zip(
            x.shape[2:], sides, strides, reaches, padded.shape[2:], strict=True
        )
    ]
    more = [(0, 0), (0, 0), *((0, step) for step in strides)]
    padded = np.pad(padded, more, constant_values=beyond)
    for where in itertools.product(*map(enumerate, starts)):
        cuts = zip(where, reaches, dilations, strict=True)
        cut = tuple(slice(start, start + reach, d) for (_, start), reach, d in cuts)
        yield tuple(o for o, _ in where), padded[(..., *cut)]


def assemble(rows: list[tuple[Any, Any]]) -> Any:
    """The array (N, C, *output) that has each of these (N, C) at its place."""
    output = [1 + max(where[axis] for where, _ in rows) for axis in range(len(rows[0][0]))]
    y = np.empty((*rows[0][1].shape, *output), rows[0][1].dtype)
    for where, value in rows:
        y[(..., *where)] = value
    return y


def convolve(x: Any, w: Any, b: Any = None, *, group: int = 1, **geometry: Any) -> Any:
    n, m = x.shape[0], w.shape[0]
    w = np.float64(w).reshape(group, m // group, -1)
    products = [
        (where, np.einsum("ngk,gmk->ngm", patch.reshape(n, group, -1), w).reshape(n, m))
        for where, patch in patches(x, **geometry)
    ]
    y = assemble(products)
    return y if b is None else y + np.float64(b).reshape(-1, *(1,) * (x.ndim - 2))


def scatter(
    columns: Any, size: Any, strides: Any = None, dilations: Any = None, pads: Any = None
) -> Any:
    """Add columns (N, C, *kernel, *output) to the places that an image's windows read."""
    rank = len(size)
    kernel, output = columns.shape[2 : 2 + rank], columns.shape[2 + rank :]
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    begins = pads[:rank] if pads else (0,) * rank
    y = np.zeros((*columns.shape[:2], *size), columns.dtype)
    for k, o in itertools.product(np.ndindex(*kernel), np.ndindex(*output)):
        at = np.multiply(o, strides) + np.multiply(k, dilations) - begins
        if np.all((at >= 0) & (at < size)):
            y[(..., *at)] += columns[(slice(None), slice(None), *k, *o)]
    return y


def transpose(x: Any, w: Any, b: Any = None, *, group: int = 1, size: Any, **geometry: Any) -> Any:
    n, kernel = x.shape[0], w.shape[2:]
    columns = np.einsum(
        "ngcl,gcmk->ngmkl",
        np.float64(x).reshape(n, group, x.shape[1] // group, -1),
        np.float64(w).reshape(group, w.shape[0] // group, w.shape[1], -1),
    )
    columns = columns.reshape(n, group * w.shape[1], *kernel, *x.shape[2:])
    y = scatter(columns, size, **geometry)
    return y if b is None else y + np.float64(b).reshape(-1, *(1,) * (x.ndim - 2))


def flat(patch: Any) -> Any:
    return patch.reshape(*patch.shape[:2], -1)


def maximum(x: Any, **geometry: Any) -> Any:
    found = patches(x, fill=-np.inf, beyond=-np.inf, **geometry)
    return assemble([(where, flat(patch).max(-1)) for where, patch in found])


def places(x: Any, order: str = "C", **geometry: Any) -> Any:
    """The position in x of the first maximum of each window."""
    image = np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:], order=order)
    numbers = np.arange(np.prod(x.shape[:2])).reshape(x.shape[:2]) * image.size
    numbers = numbers.reshape(*x.shape[:2], *(1,) * image.ndim) + image
    values = patches(x, fill=-np.inf, beyond=-np.inf, **geometry)
    rows = []
    for (where, patch), (_, names) in zip(values, patches(numbers, **geometry), strict=True):
        first = flat(patch).argmax(-1)[..., None]
        rows.append((where, np.take_along_axis(flat(names), first, -1)[..., 0].astype(np.int64)))
    return assemble(rows)


def mean(x: Any, *, with_padding: bool = False, **geometry: Any) -> Any:
    found = patches(x, fill=0 if with_padding else np.nan, **geometry)
    return assemble([(where, np.nanmean(flat(patch), -1)) for where, patch in found])


def norm(x: Any, p: float, **geometry: Any) -> Any:
    found = patches(x, beyond=0, **geometry)
    return assemble([(w, (np.abs(flat(patch)) ** p).sum(-1) ** (1 / p)) for w, patch in found])


def between(image: Any, at: Any) -> float:
    """The linear interpolation of an image (D1, ...) at a point; zero outside."""
    total = 0.0
    for corner in itertools.product((0, 1), repeat=image.ndim):
        index = np.floor(at).astype(int) + corner
        if np.all((index >= 0) & (index < image.shape)):
            total += image[tuple(index)] * np.prod(1 - np.abs(np.subtract(at, index)))
    return total


def deform(
    x: Any,
    w: Any,
    offset: Any,
    mask: Any = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    strides: Any,
    dilations: Any,
    pads: Any,
) -> Any:
    """The convolution of what ``offset`` makes of each window."""
    n, c, rank = *x.shape[:2], x.ndim - 2
    kernel, output = w.shape[2:], offset.shape[2:]
    offset = np.float64(offset).reshape(n, offset_group, *kernel, rank, *output)
    y = np.zeros((n, w.shape[0], *output))
    for image, channel, k, o in itertools.product(
        range(n), range(c), np.ndindex(*kernel), np.ndindex(*output)
    ):
        share = channel // (c // offset_group)
        at = np.multiply(o, strides) + np.multiply(k, dilations) - pads[:rank]
        value = between(
            np.float64(x[image, channel]), at + offset[(image, share, *k, slice(None), *o)]
        )
        if mask is not None:
            value *= mask.reshape(n, offset_group, *kernel, *output)[(image, share, *k, *o)]
        for m in range(w.shape[0]):
            if m // (w.shape[0] // group) == channel // (c // group):
                y[(image, m, *o)] += value * w[(m, channel % (c // group), *k)]
    return y
