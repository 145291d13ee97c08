"""A blockwise quantized matrix as kernels see it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenonnx_cpu.jit.compiling import Contract, In, boolean, f32, size, u8

# The types of `Weights`: `Quantized.arguments`, which are a tuple to a kernel.
WEIGHTS = (In(u8, 1), In(f32, 2), In(u8, 1), boolean, size, size, size, size, size)


class Weights(NamedTuple):
    """The fields of ``tenonnx_cpu.quantized.matrix.Quantized`` by the same names, and ``flip``.

    Attributes:
        zeros: Of no size if every zero point is ``zero``.
        flip: What bytes of codes and of zero points are combined with by exclusive or: they are
            unsigned then.
    """

    codes: Any
    scales: Any
    zeros: Any
    by_column: Any
    code_line: Any
    zero_line: Any
    flip: Any
    zero: Any
    block: Any


CODES = Contract(
    plan="codes, scales and zero points have the lengths that bits, block and columns say",
    launch="rows have the matrix' depth; a bias has a number per column",
)
