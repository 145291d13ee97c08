"""Products with blockwise quantized matrices: the choice of the kernel, and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tenonnx_cpu.buffers import contiguous, empty
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, worker_floats, worker_shares
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.kernels import LINES_ROOM, WORKSPACE
from tenonnx_cpu.matmul.product import F32, NO_BIAS, NO_EPILOGUE, NO_RESIDUAL, Epilogue, fits
from tenonnx_cpu.quantized.matrix import Quantized

Activations: TypeAlias = Literal["float32", "int8"]


class Job(NamedTuple):
    """A kernel's work: multiply ``rows``, on ``threads``; its group if it has one."""

    rows: int
    weights: Quantized
    group: int
    threads: int


# Return a kernel's working memory.
Room: TypeAlias = Callable[[Job], tuple[NDArray, ...]]

# Rows up to which codes are read once and never packed.
MAX_GEMV_ROWS = 4

GEMM_OF_BITS = {bits: JitKernel("quantized.gemm", f"q_gemm_{bits}") for bits in (2, 4, 8)}
BYTES_OF_BITS = {bits: JitKernel("quantized.bytes", f"q_bytes_{bits}") for bits in (2, 4, 8)}
DOTS_OF_BITS = {bits: JitKernel("quantized.gemv_dot", f"q_dots_{bits}") for bits in (2, 4, 8)}
REAL_DOTS = {bits: JitKernel("quantized.gemv_dot", f"q_reals_{bits}") for bits in (2, 4, 8)}
BYTE_GEMV = {bits: JitKernel("quantized.gemv_axpy", f"q_gemv_bytes_{bits}") for bits in (2, 4)}
REAL_GEMV = {bits: JitKernel("quantized.gemv_axpy", f"q_gemv_reals_{bits}") for bits in (2, 4, 8)}


def activations_at(accuracy_level: int) -> Activations:
    """Return what an ``accuracy_level`` of MatMulNBits allows activations to be."""
    return "int8" if accuracy_level == 4 else "float32"


def request(weights: Quantized, activations: Activations) -> None:
    """Have the kernels compiled that products with a matrix need."""
    for rows in (1, MAX_GEMV_ROWS + 1):
        _choose(weights, rows, activations)[0].request()


def matmul_q(
    x: NDArray,
    weights: Quantized,
    threads: int,
    bias: NDArray | None = None,
    residual: NDArray | None = None,
    epilogue: Epilogue = NO_EPILOGUE,
    activations: Activations = "int8",
) -> Launch | None:
    """Return what computes ``activation(alpha * x @ W + bias + residual)`` as float32.

    Args:
        x: float32, ``(..., depth)``.
        weights: W.
        threads: How many to use at most.
        bias: float32, one for every column.
        residual: float32, of the result's shape.
        epilogue: What else to do.
        activations: ``"int8"`` allows x to be rounded to 8 bits, block by block, where that is
            faster: about 0.4 % of a block's greatest element.

    Returns:
        ``None`` if the kernel is not ready or does not take these arrays.
    """
    depth, columns = weights.depth, weights.columns
    if x.dtype != F32 or x.shape[-1] != depth or not x.size or not x.flags.aligned:
        return None
    shape = (*x.shape[:-1], columns)
    if bias is not None and not (bias.shape == (columns,) and fits(bias)):
        return None
    if residual is not None and not (residual.shape == shape and fits(residual)):
        return None
    rows = contiguous(x.reshape(-1, depth))
    kernel, group, room = _choose(weights, len(rows), activations)
    run = kernel.run
    if run is None:
        return None
    result = empty(shape)
    padded = 4 if len(rows) == 3 else len(rows)
    arguments = (
        rows, *weights.arguments, *((group,) if group else ()), result.reshape(-1, columns),
        NO_BIAS if bias is None else bias,
        NO_RESIDUAL if residual is None else residual.reshape(-1, columns),
        epilogue.alpha, *epilogue.activation,
        *room(Job(padded, weights, group, threads)), threads,
    )  # fmt: skip
    return Launch(run, arguments, result)


def _choose(weights: Quantized, rows: int, activations: Activations) -> tuple[JitKernel, int, Room]:
    """Return the kernel for so many rows, its group if it takes one, and its memory."""
    bits, rounded = weights.bits, activations == "int8"
    if rows <= MAX_GEMV_ROWS:
        if group := weights.group_of_lines:
            if rounded and bits in BYTE_GEMV:
                return BYTE_GEMV[bits], group, _lines_room
            return REAL_GEMV[bits], group, _real_lines_room
        if rounded and (group := weights.group_of_chunk):
            return DOTS_OF_BITS[bits], group, _dots_room
        if weights.fits_reals:
            return REAL_DOTS[bits], 0, _real_dots_room
    if rounded and (group := weights.group_of_words):
        return BYTES_OF_BITS[bits], group, _bytes_room
    return GEMM_OF_BITS[bits], 0, _gemm_room


def _lines_room(job: Job) -> tuple[NDArray, ...]:
    rows, depth, groups = job.rows, job.weights.depth, job.weights.depth // job.group
    return pieces(
        ((rows, depth), np.int8), ((2, rows, groups), np.float32), ((rows, groups), np.int32),
        worker_shares(LINES_ROOM, job.threads),
    )  # fmt: skip


def _real_lines_room(job: Job) -> tuple[NDArray, ...]:
    return pieces(
        ((job.rows, job.weights.depth), np.float32), worker_shares(LINES_ROOM, job.threads)
    )


def _dots_room(job: Job) -> tuple[NDArray, ...]:
    rows, depth, groups = job.rows, job.weights.depth, job.weights.depth // job.group
    return pieces(
        ((rows, depth), np.int8), ((2, rows, groups), np.float32),
        ((rows, depth * job.weights.bits // 32), np.int32), ((job.threads, 32), np.float32),
    )  # fmt: skip


def _real_dots_room(job: Job) -> tuple[NDArray, ...]:
    rows, depth, sums = job.rows, job.weights.depth, job.weights.sums
    return pieces(
        ((rows, depth), np.float32), ((rows, sums), np.float32), ((job.threads, 32), np.float32)
    )


def _bytes_room(job: Job) -> tuple[NDArray, ...]:
    rows, depth, groups = job.rows, job.weights.depth, job.weights.depth // job.group
    return pieces(
        ((rows, depth), np.uint8), ((2, rows, groups), np.float32),
        worker_shares(WORKSPACE, job.threads),
    )  # fmt: skip


def _gemm_room(job: Job) -> tuple[NDArray, ...]:
    return (worker_floats(WORKSPACE, job.threads),)
