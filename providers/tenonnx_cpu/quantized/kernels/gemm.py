"""Products with blockwise quantized matrices, dequantized panel by panel into the cache."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Kernel, Out, f32, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.matmul.kernels import DEPTH, NUMBERS_PLACE, WORKSPACE
from tenonnx_cpu.matmul.kernels.block import PANEL_ROW_BYTES, multiply_ahead, split
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.matmul.kernels.gemm import block_shape
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, ZERO
from tenonnx_cpu.quantized.kernels.dequantize import make_dequantize
from tenonnx_cpu.quantized.kernels.matrix import CODES, WEIGHTS, Weights


def make_q_gemm(bits: int) -> Kernel:
    """Return the product of float32 by codes of so many bits."""
    dequantize = make_dequantize(bits)

    @parallel
    def compute_blocks(arguments: Any, task: Any, worker: Any) -> None:
        a, weights, c, extras, shape, memory = arguments
        rows, columns = c.shape
        depth = a.shape[1]
        across = -(-columns // shape[1])
        top, left = task // across * shape[0], task % across * shape[1]
        high, wide = min(shape[0], rows - top), min(shape[1], columns - left)
        packed = memory.ctypes.data + 4 * WORKSPACE * worker
        a_block = a.ctypes.data + top * a.strides[0]
        c_block = c.ctypes.data + 4 * (top * columns + left)
        deep = split(depth, DEPTH, LANES)
        for k in range(0, depth, deep):
            kk = min(deep, depth - k)
            for column in range(0, wide, COLUMNS):
                span = min(COLUMNS, wide - column)
                target = packed + PANEL_ROW_BYTES * kk * (column // COLUMNS)
                dequantize(weights, k, kk, left + column, span, packed + 4 * NUMBERS_PLACE, target)
            multiply_ahead(
                high, wide, kk, a_block + k * a.strides[1], a.strides[0], a.strides[1],
                packed, 0, 0, c_block, 4 * columns, ADD if k else ZERO, 0, 0, 0,
            )  # fmt: skip
        finish_rows(c, top, top + high, left, left + wide, extras)

    @kernel((In(f32, 2, "A"), WEIGHTS, Out(f32, 2), EXTRAS, Out(f32, 1), size), CODES)
    def product(a: Any, weights: Any, c: Any, extras: Any, memory: Any, threads: Any) -> None:
        """Compute ``C = finish(A @ W)``.

        Args:
            a: ``(rows, depth)``.
            weights: See ``WEIGHTS``.
            c: The result.
            extras: See ``EXTRAS``.
            memory: ``WORKSPACE`` floats for every thread.
            threads: How many to use.
        """
        rows, columns = c.shape
        shape = block_shape(rows, columns, a.shape[1], 1, threads)
        tasks = -(-rows // shape[0]) * -(-columns // shape[1])
        compute_blocks((a, Weights(*weights), c, extras, shape, memory), tasks, threads)

    return product


q_gemm_2, q_gemm_4, q_gemm_8 = (make_q_gemm(bits) for bits in (2, 4, 8))
