"""Sums of products of bytes in int32, with the best instruction that the processor has."""

from __future__ import annotations

import llvmlite.binding as llvm

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.vector import I8, I16, I32, Builder, Value

SUMS = v.vector(I32, LANES)
BYTE_VECTOR = v.vector(I8, 4 * LANES)

INSTRUCTION = {
    "avx512": "llvm.x86.avx512.vpdpbusd.512",
    "avx": "llvm.x86.avx512.vpdpbusd.256",
    "i8mm": "llvm.aarch64.neon.usdot.v4i32.v16i8",
}
SIGNED = "llvm.aarch64.neon.sdot.v4i32.v16i8"

# By lanes, the sums of two products of bytes, in int16, and of two of int16, in int32.
PAIRS = {
    8: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    16: ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
}

# Variants of functions that sum products of bytes: 1 where the sums of pairs fit int16.
FITS = (0, 1) if cpu().pairs else (0,)


def dot(b: Builder, sums: Value, unsigned: Value, signed: Value, bits: int = 8) -> Value:
    """Add, in every lane, the products of four uint8 by four int8 to an int32.

    Of fewer than 8 ``bits``, one of the two has no number beyond 15, or the sums of adjacent
    products are known to fit int16.
    """
    if name := INSTRUCTION.get(cpu().vnni):
        return _instruction(b, name, sums, unsigned, signed)
    if cpu().vnni == "dotprod":
        # It takes int8 alone: u w = (u - 128) w + 64 w + 64 w, the last two of which those that
        # share w share.
        half = v.constant(BYTE_VECTOR, 64)
        rest = _instruction(b, SIGNED, v.constant(SUMS, 0), half, signed)
        rest = _instruction(b, SIGNED, rest, half, signed)
        low = b.xor(b.bitcast(unsigned, BYTE_VECTOR), v.constant(BYTE_VECTOR, -128))
        return b.add(_instruction(b, SIGNED, sums, low, signed), rest)
    if bits < 8 and LANES in PAIRS:
        return b.add(sums, _through_int16(b, unsigned, signed))
    halves = v.vector(I16, 2 * LANES)
    eight = v.constant(halves, 8)
    x, y = b.bitcast(unsigned, halves), b.bitcast(signed, halves)
    even = _pairs(b, b.and_(x, v.constant(halves, 255)), b.ashr(b.shl(y, eight), eight))
    odd = _pairs(b, b.lshr(x, eight), b.ashr(y, eight))
    return b.add(b.add(sums, even), odd)


def _instruction(b: Builder, name: str, sums: Value, left: Value, right: Value) -> Value:
    # LLVM 22 has bytes on x86 where older ones have int32 of the same bits.
    old = name.startswith("llvm.x86") and llvm.llvm_version_info[0] < 22
    taken = SUMS if old else BYTE_VECTOR
    return v.call_function(b, name, SUMS, sums, b.bitcast(left, taken), b.bitcast(right, taken))


def _through_int16(b: Builder, unsigned: Value, signed: Value) -> Value:
    """Return the sums of four products, of which two do not leave int16."""
    ones = v.constant(v.vector(I16, 2 * LANES), 1)
    return v.call_function(b, PAIRS[LANES][1], SUMS, pair_sums(b, unsigned, signed), ones)


def pair_sums(b: Builder, unsigned: Value, signed: Value) -> Value:
    """Return the sums of adjacent products, which must fit int16, where ``LANES in PAIRS``."""
    halves, taken = (
        v.vector(I16, 2 * LANES),
        (b.bitcast(x, BYTE_VECTOR) for x in (unsigned, signed)),
    )
    return v.call_function(b, PAIRS[LANES][0], halves, *taken)


def _pairs(b: Builder, x: Value, y: Value) -> Value:
    """Return the sums of adjacent products of int16, in the form of pmaddwd."""
    wide = v.vector(I32, 2 * LANES)
    products = b.mul(b.sext(x, wide), b.sext(y, wide))
    even, odd = (v.shuffle(b, products, products, range(n, 2 * LANES, 2)) for n in (0, 1))
    return b.add(even, odd)


def planes(b: Builder, bits: int, raw: Value) -> list[Value]:
    """Return the codes of a vector of bytes, one to a byte: the first of each byte, and so on."""
    if bits == 8:
        return [raw]
    mask = v.constant(BYTE_VECTOR, (1 << bits) - 1)
    words = b.bitcast(raw, SUMS)
    parts = [
        b.lshr(words, v.constant(SUMS, shift)) if shift else words for shift in range(0, 8, bits)
    ]
    return [b.and_(b.bitcast(part, BYTE_VECTOR), mask) for part in parts]
