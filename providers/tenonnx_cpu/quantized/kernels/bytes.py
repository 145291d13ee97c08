"""Products of many rows with quantized matrices: activations as bytes, codes packed as bytes."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.int8.kernels.tiles import begin_products
from tenonnx_cpu.jit.compiling import In, Kernel, Out, f32, helper, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.amx import end_tiles
from tenonnx_cpu.jit.vectors.shared import under
from tenonnx_cpu.matmul.kernels import (
    BYTES_DEPTH,
    BYTES_NUMBERS,
    BYTES_STARTS,
    BYTES_WORDS,
    WORKSPACE,
)
from tenonnx_cpu.matmul.kernels.block import split
from tenonnx_cpu.matmul.kernels.epilogue import EXTRAS, finish_rows
from tenonnx_cpu.matmul.kernels.gemm import block_shape
from tenonnx_cpu.matmul.kernels.tile import ADD, COLUMNS, ZERO
from tenonnx_cpu.quantized.kernels.matrix import CODES, WEIGHTS, Weights
from tenonnx_cpu.quantized.kernels.pack import SHIFT, make_pack_codes
from tenonnx_cpu.quantized.kernels.round8 import QUAD, order_bytes, round_groups
from tenonnx_cpu.quantized.kernels.tile import BITS, Q_TILE_ROWS, multiply_codes
from tenonnx_cpu.quantized.kernels.tiles import multiply_codes_in_tiles

# Elements of a group that are worth tiles: sums leave those through memory, group by group.
TILED_GROUP = 128


def make_q_bytes(bits: int) -> Kernel:
    """Return the product of many rows with codes of so many bits."""
    pack_codes, order = make_pack_codes(bits), under(order_bytes, bits, QUAD)
    multiply = under(multiply_codes, max(bits, BITS[0]))

    @parallel
    def round_rows(arguments: Any, task: Any, worker: Any) -> None:
        a, group, by_column, numbers, bytes_ = arguments
        own = bytes_[task]
        round_groups(a[task], group, SHIFT, numbers[0, task], numbers[1, task], own)
        if by_column:
            order(own.ctypes.data, own.size)

    @helper
    def multiply_panels(
        rows: Any, columns: Any, tiles: Any, x: Any, x_row: Any, x_scales: Any, scale_row: Any,
        space: Any, count: Any, fours: Any, c: Any, c_row: Any, mode: Any,
    ) -> None:  # fmt: skip
        """Multiply rows by packed panels, in tiles if they have been begun."""
        starts, scales = space + 4 * BYTES_STARTS, space + 4 * BYTES_NUMBERS
        if tiles[0]:
            for column in range(0, columns, COLUMNS):
                own = column * BYTES_DEPTH
                multiply_codes_in_tiles(
                    rows, tiles, x, x_row, x_scales, scale_row, space + own, scales + own // 4,
                    starts + own // 4, count, fours, c + 4 * column, c_row, mode,
                )  # fmt: skip
            return
        tall = split(rows, Q_TILE_ROWS, 1)
        for row in range(0, rows, tall):
            for column in range(0, columns, COLUMNS):
                own = column * BYTES_DEPTH
                multiply(
                    min(tall, rows - row), x + row * x_row, x_row, x_scales + row * scale_row,
                    scale_row, space + own, scales + own // 4, starts + own // 4, count, fours,
                    c + row * c_row + 4 * column, c_row, mode,
                )  # fmt: skip

    @parallel
    def compute_blocks(arguments: Any, task: Any, worker: Any) -> None:
        x, numbers, weights, group, c, extras, shape, memory = arguments
        rows, columns = c.shape
        depth = x.shape[1]
        across = -(-columns // shape[1])
        top, left = task // across * shape[0], task % across * shape[1]
        high, wide = min(shape[0], rows - top), min(shape[1], columns - left)
        space = memory.ctypes.data + 4 * WORKSPACE * worker
        deep = max(1, BYTES_DEPTH // group)
        total = depth // group
        tiles = begin_products(high, group // 4) if group >= TILED_GROUP else (0, 0)
        for g in range(0, total, deep):
            count = min(deep, total - g)
            for column in range(0, wide, COLUMNS):
                pack_codes(
                    weights, g * group, count, group, left + column, space + 4 * BYTES_WORDS,
                    space + column * BYTES_DEPTH,
                    space + 4 * BYTES_NUMBERS + column * BYTES_DEPTH // 4,
                    space + 4 * BYTES_STARTS + column * BYTES_DEPTH // 4,
                )  # fmt: skip
            multiply_panels(
                high, wide, tiles, x.ctypes.data + top * depth + g * group, depth,
                numbers.ctypes.data + 4 * (top * total + g), 4 * total, space, count, group // 4,
                c.ctypes.data + 4 * (top * columns + left), 4 * columns, ADD if g else ZERO,
            )  # fmt: skip
        if tiles[0]:
            end_tiles()
        finish_rows(c, top, top + high, left, left + wide, extras)

    @kernel(
        (
            In(f32, 2), WEIGHTS, size, Out(f32, 2), EXTRAS,
            (Out(u8, 2), Out(f32, 3), Out(f32, 1)), size,
        ),
        CODES,
    )  # fmt: skip
    def product(
        a: Any, weights: Any, group: Any, c: Any, extras: Any, room: Any, threads: Any
    ) -> None:
        """Compute ``C = finish(A @ W)`` for whole panels of columns.

        Args:
            a: ``(rows, depth)``.
            weights: See ``WEIGHTS``.
            group: Elements of A that have a scale in common: a multiple of 16 that divides a
                block's.
            c: The result.
            extras: See ``EXTRAS``.
            room: For A as bytes, of its shape; for two floats per row and group, ``(2, rows,
                groups)``; and for ``WORKSPACE`` floats per thread.
            threads: How many to use.
        """
        bytes_, numbers, memory = room
        matrix = Weights(*weights)
        round_rows((a, group, matrix.by_column, numbers, bytes_), a.shape[0], threads)
        rows, columns = c.shape
        shape = block_shape(rows, columns, a.shape[1], 1, threads)
        tasks = -(-rows // shape[0]) * -(-columns // shape[1])
        compute_blocks(
            (bytes_, numbers[0], matrix, group, c, extras, shape, memory), tasks, threads
        )

    return product


q_bytes_2, q_bytes_4, q_bytes_8 = (make_q_bytes(bits) for bits in (2, 4, 8))
