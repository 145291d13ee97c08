"""AffineGrid: a product and a sum for each axis, on lines of places of which each has all axes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead, fix
from tenonnx_cpu.elementwise.kernels.operations import AFFINE, FLOAT32, FLOAT64
from tenonnx_cpu.elementwise.typed import APPLY, CODE_OF_DTYPE, OF_SIZE, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize


@specialize("AffineGrid")
def specialize_affine_grid(site: Site, plain: Call) -> Call | None:
    """Take sizes that are constants."""
    size = site.constant(1)
    if size is None or not 4 <= size.size <= 5 or (size < 1).any():
        return None
    APPLY.request()
    aligned, shape = bool(site.attribute("align_corners", 0)), tuple(size.tolist())
    return Capturable(functools.partial(_mapped, aligned, shape, site.threads, plain))


@cacheable
def _mapped(
    aligned: bool, size: tuple[int, ...], threads: int, plain: Call, theta: NDArray, given: NDArray
) -> Any:
    """Return a launch, or the result."""
    rank, element = len(size) - 2, CODE_OF_DTYPE.get(theta.dtype)
    if element not in (FLOAT32, FLOAT64) or theta.shape != (size[0], rank, rank + 1):
        return plain(theta, given)
    count, lengths, width = size[0], size[2:], size[-1]
    # Of each column of theta lines of places, of which all have the same numbers.
    columns = np.broadcast_to(theta.transpose(2, 0, 1)[:, :, None], (rank + 1, count, width, rank))
    moved = OF_SIZE[theta.itemsize]
    lines: Launch | None = launch(moved, moved, (columns,), theta.dtype, threads)
    if lines is None:
        return plain(theta, given)
    *factors, total = ahead(lines).reshape(rank + 1, count, *(1,) * (rank - 1), width * rank)
    made: Launch | None = None
    for axis, length in enumerate(lengths):
        total = total if made is None else ahead(made)
        places = _places(length, aligned, theta.dtype, axis, rank)
        operands = places, factors[rank - 1 - axis], total
        made = launch(AFFINE, element, operands, theta.dtype, threads)
        if made is None:
            return plain(theta, given)
    assert made is not None, "there are two axes or three"
    return made._replace(result=made.result.reshape(count, *lengths, rank))


@functools.lru_cache(maxsize=64)
def _places(length: int, aligned: bool, dtype: np.dtype[Any], axis: int, rank: int) -> NDArray:
    """Return the places along an axis; along the last one, each as often as there are axes."""
    step = 2 / max(length - 1, 1) if aligned else 2 / length
    start = -1.0 if aligned else step / 2 - 1
    places = (start + np.arange(length) * step).astype(dtype)
    if axis == rank - 1:
        return fix(places.repeat(rank))
    return fix(places.reshape(-1, *(1,) * (rank - 1 - axis)))
