"""Matrix products: A in place, B packed panel by panel into the cache, results finished there."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i64, kernel, size, u16
from tenonnx_cpu.jit.epilogue import finish_rows
from tenonnx_cpu.jit.memory import load_float, store_float
from tenonnx_cpu.jit.pack import WIDTH, make_pack
from tenonnx_cpu.jit.pool import parallel
from tenonnx_cpu.jit.tile import ADD, COLUMNS, ROWS, ZERO, multiply_tile
from tenonnx_cpu.jit.workspace import COLUMNS_AT_MOST, DEPTH, EDGE, WORKSPACE

PANEL = 4 * COLUMNS
"""Bytes of a row of a packed panel."""


@helper
def split(length: Any, piece: Any, unit: Any) -> Any:
    """Returns the size of about equal pieces, none over ``piece``, in whole units but the last."""
    count = -(-length // piece)
    return -(-length // (count * unit)) * unit


@helper
def block_shape(rows: Any, columns: Any, batch: Any, threads: Any) -> Any:
    """Returns how many rows and columns of the result one task computes.

    Several tasks per thread even out what else the machine does, but every task packs its part of
    B anew: it should have a few tiles to use that for.
    """
    if threads == 1:
        return rows, COLUMNS_AT_MOST
    wanted = -(-4 * threads // batch)
    width = max(2 * COLUMNS, min(COLUMNS_AT_MOST, columns // wanted))
    width = split(columns, width, COLUMNS)
    bands = min(-(-rows // (4 * ROWS)), -(-wanted // -(-columns // width)))
    return split(rows, -(-rows // max(1, bands)), 1), width


@helper
def multiply_block(
    rows: Any, columns: Any, depth: Any,
    a: Any, a_row: Any, a_column: Any,
    b: Any, b_row: Any, b_panel: Any,
    c: Any, c_row: Any, mode: Any, edge: Any,
) -> None:  # fmt: skip
    """Multiplies some rows of A by panels of B, tile by tile.

    Args:
        rows: Of A and C.
        columns: Of C. The last panel of B has ``COLUMNS`` all the same.
        depth: Columns of A, rows of B.
        a: Address of A, and bytes from row to row and from column to column.
        a_row: Likewise.
        a_column: Likewise.
        b: Address of the first panel, and bytes from row to row and from panel to panel.
        b_row: Likewise.
        b_panel: Likewise.
        c: Address of C, and bytes from row to row.
        c_row: Likewise.
        mode: ``ZERO`` or ``ADD``.
        edge: Address of ``ROWS * COLUMNS`` floats to work in.
    """
    high = split(rows, ROWS, 1)
    for row in range(0, rows, high):
        count = min(high, rows - row)
        left = a + row * a_row
        for column in range(0, columns, COLUMNS):
            right = b + column // COLUMNS * b_panel
            place = c + row * c_row + 4 * column
            span = min(COLUMNS, columns - column)
            if span == COLUMNS:
                multiply_tile(count, left, a_row, a_column, right, b_row, depth, place, c_row, mode)
                continue
            multiply_tile(count, left, a_row, a_column, right, b_row, depth, edge, PANEL, ZERO)
            for i in range(count):
                for j in range(span):
                    x = load_float(edge + i * PANEL + 4 * j)
                    target = place + i * c_row + 4 * j
                    store_float(x + load_float(target) if mode == ADD else x, target)


def make_product(kind: str) -> Any:
    """Returns the product of float32 by B of a kind of elements, for kernels to call."""
    pack = make_pack(kind)
    width = WIDTH[kind]

    @parallel
    def compute_blocks(arguments: Any, task: Any, worker: Any) -> None:
        a, b, c, offsets, extras, shape, memory = arguments
        depth, columns = a.shape[1], b.shape[1]
        rows = c.shape[0] // offsets.shape[0]
        across = -(-columns // shape[1])
        tasks = across * -(-rows // shape[0])
        item, place = task // tasks, task % tasks
        top, left = place // across * shape[0], place % across * shape[1]
        bottom, right = min(rows, top + shape[0]), min(columns, left + shape[1])
        a_row, a_column = a.strides
        b_row, b_column = b.strides
        packed = memory.ctypes.data + 4 * WORKSPACE * worker
        edge = packed + 4 * EDGE
        a_block = a.ctypes.data + offsets[item, 0] + top * a_row
        b_block = b.ctypes.data + offsets[item, 1] + left * b_column
        c_block = c.ctypes.data + 4 * ((item * rows + top) * columns + left)
        # So few rows use B that packing it does not pay, but the panel that sticks out.
        direct = kind == "f32" and b_column == width and bottom - top <= 2 * ROWS
        whole = (right - left) // COLUMNS * COLUMNS if direct else 0
        if whole:
            multiply_block(
                bottom - top, whole, depth, a_block, a_row, a_column,
                b_block, b_row, PANEL, c_block, 4 * columns, ZERO, edge,
            )  # fmt: skip
        deep = split(depth, DEPTH, 1)
        rest = right - left - whole
        for k in range(0, depth if rest else 0, deep):
            kk = min(deep, depth - k)
            for column in range(0, rest, COLUMNS):
                source = b_block + k * b_row + (whole + column) * b_column
                target = packed + PANEL * kk * (column // COLUMNS)
                pack(source, b_row, b_column, kk, min(COLUMNS, rest - column), target)
            multiply_block(
                bottom - top, rest, kk, a_block + k * a_column, a_row, a_column,
                packed, PANEL, PANEL * kk,
                c_block + 4 * whole, 4 * columns, ADD if k else ZERO, edge,
            )  # fmt: skip
        finish_rows(c, item * rows + top, item * rows + bottom, left, right, extras)

    @helper
    def product(
        a: Any, b: Any, c: Any, offsets: Any, extras: Any, memory: Any, threads: Any
    ) -> None:
        """Computes ``C[i] = finish(A[i] @ B[i])`` for every i of a batch.

        Args:
            a: The first A, ``(rows, depth)``.
            b: The first B, ``(depth, columns)``.
            c: All results below one another, ``(batch * rows, columns)``.
            offsets: Bytes from the first A and B to the others, ``(batch, 2)``.
            extras: What ``finish_rows`` takes.
            memory: ``WORKSPACE`` floats for every thread.
            threads: How many threads to use.
        """
        batch = offsets.shape[0]
        rows = c.shape[0] // batch
        shape = block_shape(rows, b.shape[1], batch, threads)
        tasks = batch * -(-rows // shape[0]) * -(-b.shape[1] // shape[1])
        compute_blocks((a, b, c, offsets, extras, shape, memory), tasks, threads)

    return product


def signature(element: Any) -> tuple[Any, ...]:
    """Returns the types of a product's arguments, for B of a type of elements."""
    return (
        In(f32, 2, "A"), In(element, 2, "A"), Out(f32, 2), In(i64, 2), In(f32, 1), In(f32, 2),
        f32, size, f32, f32, Out(f32, 1), size,
    )  # fmt: skip


product_f32 = make_product("f32")


@kernel(signature(f32))
def gemm_f32(
    a: Any, b: Any, c: Any, offsets: Any, bias: Any, residual: Any,
    alpha: Any, activation: Any, first: Any, second: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_product``."""
    extras = (bias, residual, alpha, activation, first, second)
    product_f32(a, b, c, offsets, extras, memory, threads)


product_f16 = make_product("f16")


@kernel(signature(u16))
def gemm_f16(
    a: Any, b: Any, c: Any, offsets: Any, bias: Any, residual: Any,
    alpha: Any, activation: Any, first: Any, second: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_product``."""
    extras = (bias, residual, alpha, activation, first, second)
    product_f16(a, b, c, offsets, extras, memory, threads)


product_bf16 = make_product("bf16")


@kernel(signature(u16))
def gemm_bf16(
    a: Any, b: Any, c: Any, offsets: Any, bias: Any, residual: Any,
    alpha: Any, activation: Any, first: Any, second: Any, memory: Any, threads: Any,
) -> None:  # fmt: skip
    """See ``make_product``."""
    extras = (bias, residual, alpha, activation, first, second)
    product_bf16(a, b, c, offsets, extras, memory, threads)
