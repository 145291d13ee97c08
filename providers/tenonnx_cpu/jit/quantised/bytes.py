"""Products of many rows with quantised matrices: activations as bytes, codes packed as bytes."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Kernel, Out, boolean, f32, kernel, pasted, size, u8
from tenonnx_cpu.jit.products.block import split
from tenonnx_cpu.jit.products.epilogue import finish_rows
from tenonnx_cpu.jit.products.gemm import block_shape
from tenonnx_cpu.jit.products.tile import ADD, COLUMNS, ZERO
from tenonnx_cpu.jit.quantised.pack import SHIFT, make_pack_codes
from tenonnx_cpu.jit.quantised.round8 import round_groups
from tenonnx_cpu.jit.quantised.tile import ROWS, multiply_codes
from tenonnx_cpu.jit.threads.pool import parallel
from tenonnx_cpu.jit.workspace import (
    BYTES_DEPTH,
    BYTES_NUMBERS,
    BYTES_STARTS,
    BYTES_WORDS,
    WORKSPACE,
)


def make_q_bytes(bits: int) -> Any:
    """Returns the product of many rows with codes of so many bits."""
    each = 8 // bits
    pack_codes = make_pack_codes(bits)

    @parallel
    def round_rows(arguments: Any, task: Any, worker: Any) -> None:
        a, group, mixed, numbers, bytes_ = arguments
        round_groups(
            a[task], group, 4, mixed, SHIFT, numbers[0, task], numbers[1, task], bytes_[task]
        )

    @parallel
    def compute_blocks(arguments: Any, task: Any, worker: Any) -> None:
        x, numbers, weights, group, block, c, extras, shape, memory = arguments
        rows, columns = c.shape
        depth = x.shape[1]
        across = -(-columns // shape[1])
        top, left = task // across * shape[0], task % across * shape[1]
        high, wide = min(shape[0], rows - top), min(shape[1], columns - left)
        space = memory.ctypes.data + 4 * WORKSPACE * worker
        deep = max(1, BYTES_DEPTH // group)
        total = depth // group
        for g in range(0, total, deep):
            count = min(deep, total - g)
            for column in range(0, wide, COLUMNS):
                pack_codes(
                    weights, g * group, count, group, block, left + column,
                    space + 4 * BYTES_WORDS, space + column * BYTES_DEPTH,
                    space + 4 * BYTES_NUMBERS + column * BYTES_DEPTH // 4,
                    space + 4 * BYTES_STARTS + column * BYTES_DEPTH // 4,
                )  # fmt: skip
            tall = split(high, ROWS, 1)
            for row in range(top, top + high, tall):
                for column in range(0, wide, COLUMNS):
                    multiply_codes(
                        min(tall, top + high - row),
                        x.ctypes.data + row * depth + g * group, depth,
                        numbers.ctypes.data + 4 * (row * total + g), 4 * total,
                        space + column * BYTES_DEPTH,
                        space + 4 * BYTES_NUMBERS + column * BYTES_DEPTH // 4,
                        space + 4 * BYTES_STARTS + column * BYTES_DEPTH // 4,
                        count, group // 4,
                        c.ctypes.data + 4 * (row * columns + left + column), 4 * columns,
                        ADD if g else ZERO,
                    )  # fmt: skip
        finish_rows(c, top, top + high, left, left + wide, extras)

    @pasted
    def product(
        a: Any, weights: Any, block: Any, group: Any, c: Any, extras: Any, bytes_: Any,
        numbers: Any, memory: Any, threads: Any,
    ) -> None:  # fmt: skip
        """Computes ``C = finish(A @ W)`` for whole panels of columns.

        Args:
            a: float32, ``(rows, depth)``.
            weights: As for ``make_dequantise``.
            block: Rows that have a scale in common.
            group: Elements of A that have: a multiple of 16 that divides ``block``.
            c: The result.
            extras: What ``finish_rows`` takes.
            bytes_: Room for A as bytes, of its shape.
            numbers: Room for two floats per row and group, ``(2, rows, groups)``.
            memory: ``WORKSPACE`` floats for every thread.
            threads: How many to use.
        """
        mixed = each if weights[3] else 1
        round_rows((a, group, mixed, numbers, bytes_), a.shape[0], threads)
        rows, columns = c.shape
        shape = block_shape(rows, columns, a.shape[1], 1, threads)
        tasks = -(-rows // shape[0]) * -(-columns // shape[1])
        compute_blocks(
            (bytes_, numbers[0], weights, group, block, c, extras, shape, memory), tasks, threads
        )

    return product


SIGNATURE = (
    In(f32, 2), In(u8, 1), In(f32, 2), In(u8, 1), boolean, size, size, size, size, size, size,
    Out(f32, 2), In(f32, 1), In(f32, 2), f32, size, f32, f32,
    Out(u8, 2), Out(f32, 3), Out(f32, 1), size,
)  # fmt: skip


def make_kernel(bits: int) -> Kernel:
    """Returns ``make_q_bytes``'s product for Python to call."""
    product = make_q_bytes(bits)

    @kernel(SIGNATURE)
    def compute(
        x: Any, codes: Any, scales: Any, zeros: Any, by_column: Any, code_line: Any, zero_line: Any,
        flip: Any, zero: Any, block: Any, group: Any, c: Any, bias: Any, residual: Any, alpha: Any,
        activation: Any, first: Any, second: Any, rounded: Any, numbers: Any, memory: Any,
        threads: Any,
    ) -> None:  # fmt: skip
        weights = (codes, scales, zeros, by_column, code_line, zero_line, flip, zero)
        extras = (bias, residual, alpha, activation, first, second)
        product(x, weights, block, group, c, extras, rounded, numbers, memory, threads)

    return compute


q_bytes_2, q_bytes_4, q_bytes_8 = (make_kernel(bits) for bits in (2, 4, 8))
