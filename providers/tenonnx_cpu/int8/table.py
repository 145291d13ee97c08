"""Elementwise functions of one byte, looked up in a table of 256 bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.lower import is_constant
from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.channels_last import memory_order
from tenonnx_cpu.data_movement.concat import CONCAT, concat
from tenonnx_cpu.elementwise.elementwise import PROGRAMS
from tenonnx_cpu.fuse import LOOKED_UP, QUANTIZED, Fused, Scope, fusion
from tenonnx_cpu.int8.quantized_values import ALL, BYTE_DTYPES, REQUANTIZED, QuantizedType
from tenonnx_cpu.int8.requantize import MAX_SERIAL_BYTES, Limits, flat, requantize
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.subgraph import upstream

if TYPE_CHECKING:
    import onnx_ir as ir

LOOK_UP = JitKernel("int8.table", "look_up")

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

MICROSOFT_DOMAIN = "com.microsoft"
# Operators of that domain from bytes to bytes.
OF_BYTES = ("QLinearSigmoid", "QLinearLeakyRelu", "QLinearMul", "QLinearAdd")

ALL_BYTES = np.arange(256, dtype=np.uint8)

# The most nodes of a table, which depend on one byte.
MAX_TABLE_NODES = 64


@fusion(DEQUANTIZE, priority=LOOKED_UP)
@fusion(*OF_BYTES[:2], domain=MICROSOFT_DOMAIN, priority=LOOKED_UP)
def fuse_table(node: ir.Node, scope: Scope) -> Fused | None:
    """Elementwise nodes from one byte to another, such as an activation between codes."""
    source = node.inputs[0]
    if source is None or is_constant(source) or not _is_single(node, scope):
        return None
    zero = scope.site(node).constant(2)
    if zero is None or zero.dtype not in BYTE_DTYPES:
        return None
    known = _dependent(source, scope)
    for last in reversed([each for each in known if each.op_type in (QUANTIZE, *OF_BYTES)]):
        needed = upstream(last, known.__contains__)
        taken = (*scope.unread(needed[:-1], needed), last)
        # Nodes that widen the byte may stay for other readers, and are computed again.
        left = [each for each in needed if each not in taken]
        if all(each.inputs[0] is source for each in left):
            LOOK_UP.request()
            plain = scope.fallback(needed, (source,), last.outputs[0])
            call = Capturable(TableCall(plain, scope.threads))
            return Fused(taken, (source,), (last.outputs[0],), call)
    return None


def _dependent(source: ir.Value, scope: Scope) -> list[ir.Node]:
    """Return the nodes that depend on a value's elements one by one, and on nothing else."""
    found: dict[ir.Node, None] = {}
    waiting = [use.node for use in source.uses() if use.node.op_type in (DEQUANTIZE, *OF_BYTES)]
    while waiting and len(found) < MAX_TABLE_NODES:
        node = waiting.pop(0)
        if node in found or not scope.has(node) or not _is_single(node, scope):
            continue
        inner = [value for value in node.inputs if value is not None and not is_constant(value)]
        if all(value is source or value.producer() in found for value in inner):
            found[node] = None
            waiting += [use.node for use in node.outputs[0].uses()]
    return list(found)


def _is_single(node: ir.Node, scope: Scope) -> bool:
    """Return whether a node computes every element alike, by constants of one element."""
    known = OF_BYTES if node.domain == MICROSOFT_DOMAIN else (QUANTIZE, DEQUANTIZE, *PROGRAMS)
    if (
        node.domain not in ("", MICROSOFT_DOMAIN)
        or node.op_type not in known
        or len(node.outputs) != 1
    ):
        return False
    site = scope.site(node)
    constants = (site.constant(position) for position in range(len(node.inputs)))
    return all(array is None or (array.size == 1 and array.ndim < 2) for array in constants)


@fusion("Concat", priority=QUANTIZED, takes=REQUANTIZED)
def fuse_concat(node: ir.Node, scope: Scope) -> Fused | None:
    """Arrays of bytes side by side, those whose bytes stand for other numbers looked up."""
    axis = scope.site(node).attribute("axis", None)
    CONCAT.request()

    def make(
        codes: Sequence[QuantizedType], made: QuantizedType, limits: Limits, plain: Call
    ) -> Call:
        if limits != ALL:
            return plain
        tables = tuple(None if each.same(made) else _between(each, made) for each in codes)
        kinds = tuple(each.dtype for each in codes)
        return ByteConcat(axis, kinds, tables, scope.threads, plain)

    return requantize(node, len(node.inputs), scope, LOOK_UP, make)


@cacheable
@dataclass(frozen=True, eq=False)
class ByteConcat:
    """The call of a quantized Concat: arrays of bytes side by side.

    Attributes:
        axis: Along which.
        kinds: The arrays' dtypes.
        tables: The bytes that stand for the same numbers in the result, where others do.
        threads: How many to use at most.
        plain: Computes the same from the same arrays.
    """

    axis: int
    kinds: tuple[np.dtype[Any], ...]
    tables: tuple[NDArray | None, ...]
    threads: int
    plain: Call

    def __call__(self, *arrays: NDArray) -> Any:
        """Return the result."""
        if tuple(x.dtype for x in arrays) != self.kinds:
            return self.plain(*arrays)
        parts = [
            x if table is None else done(look_up(x, table, self.threads), (x,))
            for x, table in zip(arrays, self.tables, strict=True)
        ]
        order = memory_order(parts[0])
        lain = [contiguous(part.transpose(order)) for part in parts]
        whole = _joined(lain, order.index(self.axis % len(order)), self.threads)
        return whole.transpose(np.argsort(order))


def _joined(parts: Sequence[NDArray], axis: int, threads: int) -> NDArray:
    """Return contiguous arrays side by side, of words where their bytes are whole ones."""
    first = parts[0].shape
    shape = (*first[:axis], sum(part.shape[axis] for part in parts), *first[axis + 1 :])
    rows, rest = math.prod(first[:axis]), (first[:axis], first[axis + 1 :])
    alike = all((part.shape[:axis], part.shape[axis + 1 :]) == rest for part in parts)
    if rows and alike and not any(part.nbytes % (4 * rows) for part in parts):
        out = empty(shape, parts[0].dtype)
        words = [part.reshape(rows, -1).view(np.int32) for part in parts]
        if concat(tuple(words), 1, out.reshape(rows, -1).view(np.int32), threads):
            return out
    return np.concatenate(parts, axis)


def _between(code: QuantizedType, made: QuantizedType) -> NDArray:
    """Return the bytes that stand for the same numbers as others do, as far as there are any."""
    bytes_of = ALL_BYTES.view(code.dtype).astype(np.float32)
    numbers = (bytes_of - np.float32(code.origin)) * np.float32(code.step)
    rounded = np.rint(numbers / np.float32(made.step))
    table: NDArray = np.clip(rounded, *made.bounds) + np.float32(made.origin)
    return frozen(table.astype(made.dtype))


@cacheable
class TableCall:
    """Looks up the results of all bytes.

    Args:
        plain: Computes them.
        threads: How many to use at most.
    """

    def __init__(self, plain: Call, threads: int) -> None:
        self._plain, self._threads = plain, threads
        self._tables: dict[np.dtype[Any], NDArray] = {}

    def __call__(self, x: NDArray) -> Any:
        """Return a launch, or the result."""
        # A constant of one axis gives a number one.
        if LOOK_UP.run is None or x.dtype not in BYTE_DTYPES or not x.ndim:
            return self._plain(x)
        if x.dtype not in self._tables:
            self._tables[x.dtype] = frozen(self._plain(ALL_BYTES.view(x.dtype)))
        table = self._tables[x.dtype]
        if table.dtype not in BYTE_DTYPES or table.shape != ALL_BYTES.shape:
            return self._plain(x)
        return look_up(x, table, self._threads)


def look_up(x: NDArray, table: NDArray, threads: int) -> Any:
    """Return what looks up bytes that lie in any order of axes; numpy's result of others."""
    order = memory_order(x)
    lain, run = x.transpose(order), LOOK_UP.run
    if run is None or not lain.flags.c_contiguous:
        return table[x.view(np.uint8)]
    y = empty(lain.shape, table.dtype)
    team = threads if y.size > MAX_SERIAL_BYTES else 1
    return Launch(run, (*flat(lain, table, y), team), y.transpose(np.argsort(order)))
