"""Operations on elements of any type, as instructions on numbers or on vectors of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from llvmlite import ir

from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import (
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    Builder,
    Value,
)

# Types by the logarithm of their size.
BITS = (I8, I16, I32, I64)


class Element(NamedTuple):
    """A type of elements.

    Attributes:
        code: One of ``operations``.
        stored: LLVM's type in memory.
        computed: LLVM's type that operations are done in.
    """

    code: int
    stored: ir.Type
    computed: ir.Type

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return o.SIZES[self.code]

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.code in o.FLOAT_CODES

    @property
    def is_signed(self) -> bool:
        """Whether it is an integer with a sign."""
        return self.code in (o.INT8, o.INT16, o.INT32, o.INT64)

    def load(self, b: Builder, address: Value, lanes: int) -> Value:
        """Load an element, or some if ``lanes`` is not 0, as they are computed with."""
        x = v.load(b, _lanes(self.stored, lanes), address)
        if self.code == o.FLOAT16:
            return b.fpext(x, _lanes(F32, lanes))
        if self.code == o.BFLOAT16:
            wide = b.zext(x, _lanes(I32, lanes))
            return b.bitcast(b.shl(wide, v.constant(wide.type, 16)), _lanes(F32, lanes))
        return x

    def store(self, b: Builder, x: Value, address: Value, lanes: int) -> None:
        """Store what was computed; 16-bit floats are rounded to even."""
        if self.code == o.FLOAT16:
            x = b.fptrunc(x, _lanes(F16, lanes))
        elif self.code == o.BFLOAT16:
            x = _rounded(b, x, lanes)
        v.store(b, x, address)


def _lanes(kind: ir.Type, lanes: int) -> ir.Type:
    return v.vector(kind, lanes) if lanes else kind


def _rounded(b: Builder, x: Value, lanes: int) -> Value:
    """Return float32 as the bits of bfloat16."""
    kind = _lanes(I32, lanes)
    bits = b.bitcast(x, kind)
    high = b.lshr(bits, v.constant(kind, 16))
    odd = b.and_(high, v.constant(kind, 1))
    up = b.lshr(b.add(bits, b.add(odd, v.constant(kind, 0x7FFF))), v.constant(kind, 16))
    nan = b.or_(b.and_(high, v.constant(kind, 0x8000)), v.constant(kind, 0x7FC0))
    return b.trunc(b.select(b.fcmp_unordered("uno", x, x), nan, up), _lanes(I16, lanes))


ELEMENTS = {
    code: Element(code, stored, F32 if code in (o.FLOAT16, o.BFLOAT16) else stored)
    for code, stored in (
        *((code, BITS[o.SIZES[code].bit_length() - 1]) for code in (o.BOOL, *o.INTEGERS)),
        (o.FLOAT16, F16),
        (o.BFLOAT16, I16),
        (o.FLOAT32, F32),
        (o.FLOAT64, F64),
    )
}

# Return a value of the builder, the element's type and the operands.
Meaning = Callable[..., Value]


def cast(target: Element) -> Meaning:
    """Return what converts to a type; floats beyond an integer's range are the hardware's."""

    def meaning(b: Builder, source: Element, x: Value) -> Value:
        to = _like(x, target.computed)
        if target.code == o.BOOL:
            zero = v.constant(x.type, 0)
            some = (
                b.fcmp_unordered("!=", x, zero) if source.is_float else b.icmp_signed("!=", x, zero)
            )
            return b.zext(some, to)
        if source.code == o.FLOAT64 and target.code == o.FLOAT16:
            return _rounded_to_odd(b, x, to)
        if source.is_float and target.is_float:
            return _resized(b, x, to, b.fpext, b.fptrunc)
        if target.is_float:
            return b.sitofp(x, to) if source.is_signed else b.uitofp(x, to)
        if source.is_float:
            if target.code == o.UINT64:
                return b.fptoui(x, to)
            wide = _like(x, I64 if target.size == 8 or target.code == o.UINT32 else I32)
            return _resized(b, b.fptosi(x, wide), to, b.zext, b.trunc)
        return _resized(b, x, to, b.sext if source.is_signed else b.zext, b.trunc)

    return meaning


def _rounded_to_odd(b: Builder, x: Value, to: ir.Type) -> Value:
    """Return float64 as float32 that is odd if it is not exact: rounded again, it is rounded once.

    LLVM converts float64 to 16 bits by a function of the C library's.
    """
    near = b.fptrunc(x, to)
    back, kind = b.fpext(near, x.type), _like(x, I32)
    size = [v.call(b, "llvm.fabs", x.type, each) for each in (x, back)]
    bits = b.bitcast(near, kind)
    toward_zero = b.sub(bits, b.zext(b.fcmp_ordered(">", size[1], size[0]), kind))
    odd = b.or_(toward_zero, v.constant(kind, 1))
    return b.bitcast(b.select(b.fcmp_ordered("!=", back, x), odd, bits), to)


def _like(x: Value, kind: ir.Type) -> ir.Type:
    """Return the type of as many numbers of another type."""
    return v.vector(kind, x.type.count) if isinstance(x.type, ir.VectorType) else kind


def bits_of(kind: ir.Type) -> int:
    """Return the bits of a number, or of each of a vector."""
    kind = kind.element if isinstance(kind, ir.VectorType) else kind
    return {F16: 16, F32: 32, F64: 64}[kind] if not isinstance(kind, ir.IntType) else kind.width


def _resized(b: Builder, x: Value, to: ir.Type, widen: Any, narrow: Any) -> Value:
    if bits_of(x.type) == bits_of(to):
        return x
    return widen(x, to) if bits_of(x.type) < bits_of(to) else narrow(x, to)


def compared(sign: str) -> Meaning:
    """Return what compares; a comparison with NaN is false but for inequality."""

    def meaning(b: Builder, e: Element, x: Value, y: Value) -> Value:
        if e.is_float:
            found = b.fcmp_ordered(sign, x, y)
        else:
            found = (b.icmp_signed if e.is_signed else b.icmp_unsigned)(sign, x, y)
        return b.zext(found, _like(x, I8))

    return meaning


def extreme(sign: str) -> Meaning:
    """Return what takes the greater or the lesser of two; NaN wins."""

    def meaning(b: Builder, e: Element, x: Value, y: Value) -> Value:
        if e.is_float:
            # One instruction, which keeps y beside NaN: nothing else waits for the result before.
            one = b.select(b.fcmp_ordered(sign, x, y), x, y)
            return b.select(b.fcmp_unordered("uno", x, x), x, one)
        return b.select((b.icmp_signed if e.is_signed else b.icmp_unsigned)(sign, x, y), x, y)

    return meaning


greater, lesser = extreme(">"), extreme("<")


def arithmetic(whole: str, floating: str) -> Meaning:
    """Return what an instruction does, one for integers, which wrap around, or one for floats."""

    def meaning(b: Builder, e: Element, *operands: Value) -> Value:
        return getattr(b, floating if e.is_float else whole)(*operands)

    return meaning


def quotient(b: Builder, e: Element, x: Value, y: Value) -> Value:
    """Divide; integers truncate toward 0, wrap around, and divided by 0 they are anything.

    Those of 32 bits and less are divided as floats with more digits, which is exact.
    """
    if e.is_float:
        return b.fdiv(x, y)
    y = b.select(b.icmp_signed("==", y, v.constant(y.type, 0)), v.constant(y.type, 1), y)
    if e.size == 8:
        if not e.is_signed:
            return b.udiv(x, y)
        negative = b.icmp_signed("==", y, v.constant(y.type, -1))
        safe = b.select(negative, v.constant(y.type, 1), y)
        return b.select(negative, b.neg(x), b.sdiv(x, safe))
    wide, whole = (F64, I64) if e.size == 4 else (F32, I32)
    convert = b.sitofp if e.is_signed else b.uitofp
    ratio = b.fdiv(convert(x, _like(x, wide)), convert(y, _like(y, wide)))
    return b.trunc(b.fptosi(ratio, _like(x, whole)), x.type)


def remainder(b: Builder, e: Element, x: Value, y: Value) -> Value:
    """Return what is left of a truncated quotient."""
    return b.sub(x, b.mul(quotient(b, e, x, y), y))


def modulus(b: Builder, e: Element, x: Value, y: Value) -> Value:
    """Return the remainder of the divisor's sign."""
    rest = remainder(b, e, x, y)
    if not e.is_signed:
        return rest
    zero = v.constant(x.type, 0)
    apart = b.icmp_signed("<", b.xor(rest, y), zero)
    return b.select(b.and_(b.icmp_signed("!=", rest, zero), apart), b.add(rest, y), rest)


def shifted(b: Builder, e: Element, x: Value, y: Value, *, left: bool) -> Value:
    """Shift; by a number that is negative or no less than the width, only the sign is left."""
    inside = b.icmp_unsigned("<", y, v.constant(y.type, 8 * e.size))
    if not left and e.is_signed:
        return b.ashr(x, b.select(inside, y, v.constant(y.type, 8 * e.size - 1)))
    zero = v.constant(x.type, 0)
    moved = (b.shl if left else b.lshr)(x, b.select(inside, y, zero))
    return b.select(inside, moved, zero)


def sign(b: Builder, e: Element, x: Value) -> Value:
    """Return -1, 0 or 1; NaN of NaN."""
    zero, one = v.constant(x.type, 0), v.constant(x.type, 1)
    if e.is_float:
        some = b.select(b.fcmp_ordered("<", x, zero), v.constant(x.type, -1), x)
        return b.select(b.fcmp_ordered(">", x, zero), one, some)
    if not e.is_signed:
        return b.select(b.icmp_unsigned(">", x, zero), one, zero)
    some = b.select(b.icmp_signed("<", x, zero), v.constant(x.type, -1), zero)
    return b.select(b.icmp_signed(">", x, zero), one, some)


def magnitude(b: Builder, e: Element, x: Value) -> Value:
    """Return the absolute value; the least integer stays."""
    if e.is_float:
        return v.call(b, "llvm.fabs", x.type, x)
    negative = b.icmp_signed("<", x, v.constant(x.type, 0))
    return b.select(negative, b.neg(x), x) if e.is_signed else x


def inverted(b: Builder, e: Element, x: Value) -> Value:
    """Return the other bits; the other of True and False."""
    return b.xor(x, v.constant(x.type, 1 if e.code == o.BOOL else -1))


def of_llvm(name: str) -> Meaning:
    """Return what one of LLVM's intrinsics does."""
    return lambda b, e, x: v.call(b, name, x.type, x)


def is_infinite(b: Builder, e: Element, x: Value) -> Value:
    """Return whether a float is infinite."""
    found = b.fcmp_ordered("==", magnitude(b, e, x), v.constant(x.type, float("inf")))
    return b.zext(found, _like(x, I8))


def is_nan(b: Builder, e: Element, x: Value) -> Value:
    """Return whether a float is NaN."""
    return b.zext(b.fcmp_unordered("uno", x, x), _like(x, I8))


def chosen(b: Builder, e: Element, kept: Value, x: Value, y: Value) -> Value:
    """Return the second or the third, as the first says."""
    return b.select(b.icmp_signed("!=", kept, v.constant(kept.type, 0)), x, y)


def _as_real(b: Builder, e: Element, x: Value) -> Value:
    return (b.sitofp if e.is_signed else b.uitofp)(x, _like(x, F32))


def quantized(b: Builder, e: Element, x: Value, scale: Value, zero: Value) -> Value:
    """Round ``x / scale`` half to even, add the zero point, and clip; NaN is the least number."""
    bits = 8 * e.size
    low = -(1 << bits - 1) if e.is_signed else 0
    least, most = (v.constant(x.type, float(end)) for end in (low, low + (1 << bits) - 1))
    moved = b.fadd(v.call(b, "llvm.rint", x.type, b.fdiv(x, scale)), _as_real(b, e, zero))
    moved = b.select(b.fcmp_ordered(">=", moved, least), moved, least)
    moved = b.select(b.fcmp_ordered("<", moved, most), moved, most)
    return b.trunc(b.fptosi(moved, _like(x, I32)), zero.type)


def dequantized(b: Builder, e: Element, x: Value, scale: Value, zero: Value) -> Value:
    """Return ``(x - zero) * scale``."""
    if not e.is_float:
        x, zero = _as_real(b, e, x), _as_real(b, e, zero)
    return b.fmul(b.fsub(x, zero), scale)


# The meanings of all operations but casts, on types that `operations.TAKES` names.
MEANINGS: Mapping[int, Meaning] = {
    o.NEG: lambda b, e, x: b.fneg(x) if e.is_float else b.neg(x),
    o.ABS: magnitude,
    o.SIGN: sign,
    o.NOT: inverted,
    o.FLOOR: of_llvm("llvm.floor"),
    o.CEIL: of_llvm("llvm.ceil"),
    o.ROUND: of_llvm("llvm.rint"),
    o.SQRT: of_llvm("llvm.sqrt"),
    o.RECIPROCAL: lambda b, e, x: b.fdiv(v.constant(x.type, 1.0), x),
    o.RELU: lambda b, e, x: greater(b, e, x, v.constant(x.type, 0)),
    o.IS_NAN: is_nan,
    o.IS_INF: is_infinite,
    o.ADD: arithmetic("add", "fadd"),
    o.SUB: arithmetic("sub", "fsub"),
    o.MUL: arithmetic("mul", "fmul"),
    o.DIV: quotient,
    o.MAX: greater,
    o.MIN: lesser,
    o.MOD: modulus,
    o.FMOD: remainder,
    o.AND: arithmetic("and_", ""),
    o.OR: arithmetic("or_", ""),
    o.XOR: arithmetic("xor", ""),
    o.LEFT: functools.partial(shifted, left=True),
    o.RIGHT: functools.partial(shifted, left=False),
    o.EQUAL: compared("=="),
    o.GREATER: compared(">"),
    o.LESS: compared("<"),
    o.GREATER_OR_EQUAL: compared(">="),
    o.LESS_OR_EQUAL: compared("<="),
    o.WHERE: chosen,
    o.CLIP: lambda b, e, x, low, high: lesser(b, e, greater(b, e, x, low), high),
    o.AFFINE: lambda b, e, x, factor, shift: b.fadd(b.fmul(x, factor), shift),
    o.QUANTIZE: quantized,
    o.DEQUANTIZE: dequantized,
}
