"""Sums and products of two tensors of bytes: QLinearAdd, QLinearMul, Add and Mul between codes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.channels_last import memory_order
from tenonnx_cpu.fuse import QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.quantized_values import REQUANTIZED, QuantizedType, quantized_type_at
from tenonnx_cpu.int8.requantize import MAX_SERIAL_BYTES, Limits, flat, requantize
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

if TYPE_CHECKING:
    import onnx_ir as ir

ADD, MULTIPLY = (JitKernel("int8.requantize", name) for name in ("add", "multiply"))

# Bytes that should be repeated at a time: shorter rows are repeated before.
MIN_REPEATED_BYTES = 1024

PAIR_KERNELS = {"Add": ADD, "Mul": MULTIPLY}


@fusion("Add", "Mul", priority=QUANTIZED, takes=REQUANTIZED)
def fuse_pair(node: ir.Node, scope: Scope) -> Fused | None:
    """The sum or the product of two tensors of bytes."""
    kind = node.op_type

    def make(
        codes: Sequence[QuantizedType], made: QuantizedType, limits: Limits, plain: Call
    ) -> Call:
        bounds = made.between(limits)
        pair = PairCall(kind, codes[0], codes[1], made, bounds, scope.threads, plain)
        return Capturable(pair.launch)

    return requantize(node, 2, scope, PAIR_KERNELS[kind], make)


@specialize("QLinearAdd", "QLinearMul", domain="com.microsoft")
def qlinear_pair(site: Site, plain: Call) -> Call | None:
    """The same as one operator."""
    a, b, y = (quantized_type_at(site, scale) for scale in (1, 4, 6))
    if a is None or b is None or y is None or not a.dtype == b.dtype == y.dtype:
        return None
    kind = site.node.op_type.removeprefix("QLinear")
    PAIR_KERNELS[kind].request()
    rest = tuple(site.constant(position) for position in (1, 2, 4, 5, 6, 7))
    whole = functools.partial(_with_constants, plain, rest)
    pair = PairCall(kind, a, b, y, y.bounds, site.threads, whole)
    return Capturable(functools.partial(_of_bytes, pair))


def _with_constants(
    plain: Call, constants: tuple[NDArray | None, ...], x: NDArray, z: NDArray
) -> Any:
    return plain(x, *constants[:2], z, *constants[2:])


def _of_bytes(pair: PairCall, x: NDArray, _: Any, __: Any, z: NDArray, *___: Any) -> Any:
    return pair.launch(x, z)


@cacheable
class PairCall:
    """A sum or product of bytes.

    Args:
        kind: ``"Add"`` or ``"Mul"``.
        a: What the first one's bytes stand for.
        b: What the second one's do.
        made: What the result's do.
        limits: The least and the greatest result, from the zero point on.
        threads: How many to use at most.
        plain: Computes the same from the same bytes.
    """

    def __init__(
        self,
        kind: str,
        a: QuantizedType,
        b: QuantizedType,
        made: QuantizedType,
        limits: tuple[float, float],
        threads: int,
        plain: Call,
    ) -> None:
        self._kernel = PAIR_KERNELS[kind]
        self._codes, self._made = (a, b), made
        self._threads, self._plain = threads, plain
        self._numbers = [_numbers(kind, *pair, made, limits) for pair in ((a, b), (b, a))]
        self._zeros = [
            frozen(np.array([made.origin, first.flip, second.flip], np.int32))
            for first, second in ((a, b), (b, a))
        ]

    def __call__(self, x: NDArray, y: NDArray) -> Any:
        """Return the bytes of the result."""
        return done(self.launch(x, y), (x, y))

    def launch(self, x: NDArray, y: NDArray) -> Any:
        """Return a launch that makes the bytes of the result, or those."""
        long = y if y.size > x.size else x
        order = memory_order(long)
        if x.ndim != y.ndim or order == sorted(order):
            return self._launch(x, y)
        made = self._launch(x.transpose(order), y.transpose(order))
        if type(made) is Launch:
            return made._replace(result=made.result.transpose(np.argsort(order)))
        return made.transpose(np.argsort(order))

    def _launch(self, x: NDArray, y: NDArray) -> Any:
        """Do as ``launch`` with arrays of which the larger one's elements are in order."""
        run = self._kernel.run
        turned = y.size > x.size
        long, short = (y, x) if turned else (x, y)
        first, second = self._codes
        if (
            run is None
            or (x.dtype, y.dtype) != (first.dtype, second.dtype)
            or not long.flags.c_contiguous
            or not _fits(short.shape, long.shape)
        ):
            return self._plain(x, y)
        if not _repeats(short.shape, long.shape):
            spread = empty(long.shape, short.dtype)
            np.copyto(spread, short)
            short = spread
        z = empty(long.shape, self._made.dtype)
        threads = self._threads if z.size > MAX_SERIAL_BYTES else 1
        if short.size < min(MIN_REPEATED_BYTES, long.size):
            short = np.tile(short.reshape(-1), -(-MIN_REPEATED_BYTES // short.size))[: long.size]
        given = *flat(long, contiguous(short), z), self._numbers[turned], self._zeros[turned]
        return Launch(run, (*given, threads), z)


def _numbers(
    kind: str, a: QuantizedType, b: QuantizedType, made: QuantizedType, limits: tuple[float, float]
) -> NDArray:
    """Return what the kernel takes besides bytes."""
    first, second = a.origin + a.flip, b.origin + b.flip
    if kind == "Mul":
        return frozen(np.array([first, second, a.step * b.step / made.step, *limits], np.float32))
    left, right = a.step / made.step, b.step / made.step
    shift = -(first * left + second * right)
    return frozen(np.array([left, right, shift, *limits], np.float32))


def _fits(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    """Return whether an array is broadcast to the shape of another, and has elements."""
    if len(short) > len(long) or 0 in short:
        return False
    sides = zip(reversed(short), reversed(long), strict=False)
    return all(own in (1, whole) for own, whole in sides)


def _repeats(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    """Return whether one array's elements are repeated as a whole to fit another's."""
    own = list(short)
    while own and own[0] == 1:
        own.pop(0)
    return not own or tuple(own) == long[-len(own) :]
