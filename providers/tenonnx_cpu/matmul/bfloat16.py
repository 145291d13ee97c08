"""Products in bfloat16: constant matrices as panels of tiles, and the launches that read them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, share_of, worker_shares
from tenonnx_cpu.kernel_selection import NDArray, Site
from tenonnx_cpu.matmul.kernels import TILE_COLUMNS, TILE_EDGE, TILE_STEP
from tenonnx_cpu.matmul.product import (
    F32,
    NO_BIAS,
    NO_EPILOGUE,
    NO_RESIDUAL,
    SERIAL_PRODUCTS,
    Epilogue,
    fits,
)

GEMM_TILES = JitKernel("matmul.bfloat16", "gemm_tiles")

# Bytes between rows: a power of two from row to row would put all into one set of the cache.
ROW_GAP_BYTES = 64


@cacheable
@dataclass(frozen=True, eq=False)
class Panels:
    """A constant matrix as ``bfloat16_panels`` has it.

    Attributes:
        words: Its panels, one after the other.
        depth: Its rows.
        columns: Its columns.
    """

    words: NDArray
    depth: int
    columns: int


def bfloat16_panels(matrix: NDArray, step: int = TILE_STEP) -> NDArray:
    """Return a matrix as panels of columns, two rows' elements of each column side by side.

    There are whole steps of rows, an even number each.

    Shape ``(panels, pairs of rows, TILE_COLUMNS, 2)``, the bits of bfloat16; with zeros beyond the
    matrix.
    """
    depth, columns = matrix.shape
    panels, pairs = -(-columns // TILE_COLUMNS), -(-depth // step) * step // 2
    made = np.zeros((panels, pairs, TILE_COLUMNS, 2), np.uint16)
    for number in range(panels):
        part = matrix[:, number * TILE_COLUMNS : (number + 1) * TILE_COLUMNS]
        whole = np.zeros((2 * pairs, TILE_COLUMNS), np.uint16)
        whole[:depth, : part.shape[1]] = rounded(part)
        made[number] = whole.reshape(pairs, 2, TILE_COLUMNS).transpose(0, 2, 1)
    return made


def rounded(x: NDArray) -> NDArray:
    """Return the bits of floats rounded to bfloat16, of two nearest ones to the even one."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nearest = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    # Adding to a NaN might carry it to infinity; its upper half and the quiet bit are one.
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, bits >> 16 | 0x40, nearest).astype(np.uint16)


def panels_of(
    site: Site, place: int, seen: Callable[[NDArray], NDArray] = np.asarray, form: str = ""
) -> Panels:
    """Return a node's constant matrix as panels, kept by the weights' registry.

    Args:
        site: The node.
        place: The matrix's position among its inputs.
        seen: Returns the matrix of the constant.
        form: Says which matrix that is, of those that there are of a constant.
    """
    constant = site.constant(place)
    assert constant is not None, "what has been seen to be constant"
    matrix = seen(constant)
    name = f"bfloat16-panels:{TILE_COLUMNS}:{TILE_STEP}:{form}"
    words = site.derived(name, (place,), lambda: bfloat16_panels(matrix))
    GEMM_TILES.request()
    return Panels(words.reshape(-1), *matrix.shape)


def tile_launch(
    x: NDArray,
    panels: Panels,
    threads: int,
    bias: NDArray | None = None,
    residual: NDArray | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
) -> Launch | None:
    """Return what computes ``activation(alpha * x @ panels + bias + residual)``.

    Args:
        x: float32 of any strides, of 2 dimensions or more.
        panels: The matrix.
        threads: How many to use at most.
        bias: float32, one for every column.
        residual: float32, of the result's shape.
        epilogue: What else to do.

    Returns:
        ``None`` if the kernel does not take these arrays, or is not ready.
    """
    run = GEMM_TILES.run
    if run is None or x.dtype != F32 or x.ndim < 2 or x.shape[-1] != panels.depth:
        return None
    if not x.size or not x.flags.aligned:
        return None
    if bias is not None and (bias.shape != (panels.columns,) or not fits(bias)):
        return None
    shape = (*x.shape[:-1], panels.columns)
    if residual is not None and (residual.shape != shape or not fits(residual)):
        return None
    left = x if x.ndim == 2 else x.reshape(-1, panels.depth)
    if len(left) * panels.words.size <= SERIAL_PRODUCTS:
        threads = 1
    offsets = pair_offsets(panels.depth)
    result = empty(shape)
    share = share_of(max(panels.depth, TILE_EDGE))
    rows, memory = pieces(
        ((len(left) * (4 * offsets.size + ROW_GAP_BYTES),), np.uint8), worker_shares(share, threads)
    )
    arguments = (
        left, panels.words, result.reshape(-1, panels.columns), offsets,
        NO_BIAS if bias is None else bias,
        NO_RESIDUAL if residual is None else residual.reshape(-1, panels.columns),
        epilogue.alpha, *epilogue.activation,
        rows, memory, share, threads,
    )  # fmt: skip
    return Launch(run, arguments, result)


@functools.lru_cache(maxsize=256)
def pair_offsets(depth: int) -> NDArray:
    """Return the bytes to each pair of a row of bfloat16, of whole steps."""
    offsets = np.arange(0, 2 * TILE_STEP * -(-depth // TILE_STEP), 4)
    offsets.flags.writeable = False
    return offsets
