"""Rows of a blockwise quantized table, as embeddings are looked up: every thread takes some."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel

F = np.float32


@helper
def widen(codes: Any, bits: Any, zero: Any, scale: Any, y: Any) -> None:
    """Write ``(code - zero) * scale`` of codes in a row, the first one in a byte's low bits."""
    if bits == 8:
        for i in range(codes.size):
            y[i] = (F(codes[i]) - zero) * scale
    elif bits == 4:
        for i in range(codes.size):
            y[2 * i] = (F(codes[i] & 15) - zero) * scale
            y[2 * i + 1] = (F(codes[i] >> 4) - zero) * scale
    else:
        for i in range(codes.size):
            for place in range(4):
                y[4 * i + place] = (F(codes[i] >> 2 * place & 3) - zero) * scale


@parallel
def gather_row(arguments: Any, task: Any, worker: Any) -> None:
    """Take one row."""
    codes, scales, zeros, rows, bits, block, y = arguments
    row, out = rows[task], y[task]
    if row < 0:
        row += codes.shape[0]
    if not 0 <= row < codes.shape[0]:
        for i in range(out.size):
            out[i] = F(0)
        return
    for group in range(scales.shape[1]):
        zero = F(1 << bits - 1)
        if zeros.size:
            place = group * bits
            zero = F(zeros[row, place // 8] >> place % 8 & (1 << bits) - 1)
        first, last = group * block, min(out.size, (group + 1) * block)
        own = codes[row, first * bits // 8 : last * bits // 8]
        widen(own, bits, zero, scales[row, group], out[first:last])


@kernel(
    (In(u8, 2), In(f32, 2), In(u8, 2), In(i64, 1), size, size, Out(f32, 2), size),
    Contract(
        plan="codes, scales and zero points have the lengths that bits, block and columns say",
        values="rows beyond the table are zeros, as in onnxruntime",
    ),
)
def gather_rows(codes, scales, zeros, rows, bits, block, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write rows ``(codes - zeros) * scales``; zeros for rows that do not exist.

    Args:
        codes: ``(table's rows, width * bits / 8)``, whole bytes to a block.
        scales: ``(table's rows, blocks)``.
        zeros: As many codes, each row of whole bytes; of no size for the middle of the range.
        rows: Which; negative ones count from the end.
        bits: 2, 4 or 8.
        block: Codes that have a scale in common.
        y: ``(rows, width)``.
        threads: How many threads to use.
    """
    gather_row((codes, scales, zeros, rows, bits, block, y), rows.size, threads)
