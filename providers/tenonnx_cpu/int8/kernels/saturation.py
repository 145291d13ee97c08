"""Panels of B whose sums of two products with any uint8 fit int16.

Of a pair of weights v and w the greatest sum is ``255 * (max(v, 0) + max(w, 0))``, the least
``255 * (min(v, 0) + min(w, 0))``. They fit if what 255 is multiplied by is 128 at most, -128 at
least. Weights of 7 bits always do.
"""

from __future__ import annotations

from llvmlite import ir

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.dot8 import BYTE_VECTOR, pair_sums
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import side_by_side
from tenonnx_cpu.jit.vectors.vector import I16, I32, I64, Builder, Value
from tenonnx_cpu.matmul.kernels.tile import COLUMNS, VECTORS

HALVES = v.vector(I16, 2 * LANES)


@shared("tenonnx_byte_pairs")
def see_pairs(b: Builder, /, panel: Value, steps: Value, result: Value) -> None:
    """Write an int32: 1 if the sums of all pairs of a panel fit and that is of use, 0 if not.

    Args:
        panel: Address of the panel, as ``multiply_bytes`` takes it.
        steps: How many fours of each column it has.
        result: Address of the int32.
    """
    if not cpu().pairs:
        v.store(b, I32(0), result, 4)
        return
    nothing, ones = v.constant(BYTE_VECTOR, 0), v.constant(BYTE_VECTOR, 1)

    def step(index: Value, carried: list[Value]) -> list[Value]:
        high, low = carried
        line = b.add(panel, b.mul(index, I64(4 * COLUMNS)))
        for x in side_by_side(b, BYTE_VECTOR, line, VECTORS):
            positive = b.icmp_signed(">", x, nothing)
            most = pair_sums(b, ones, b.select(positive, x, nothing))
            least = pair_sums(b, ones, b.select(positive, nothing, x))
            high = b.select(b.icmp_signed(">", most, high), most, high)
            low = b.select(b.icmp_signed("<", least, low), least, low)
        return [high, low]

    high, low = v.loop(b, steps, [v.constant(HALVES, 0)] * 2, step)
    over = b.icmp_signed(">", high, v.constant(HALVES, 128))
    under = b.icmp_signed("<", low, v.constant(HALVES, -128))
    lanes = b.bitcast(b.or_(over, under), ir.IntType(2 * LANES))
    fits = b.icmp_signed("==", lanes, ir.Constant(lanes.type, 0))
    v.store(b, b.zext(fits, I32), result, 4)
