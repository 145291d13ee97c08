"""Attention as a graph of cuDNN, which recognizes it and computes it in one kernel.

It knows attention by its operations and their order, and takes what is masked and added between the
first product and the softmax. The logarithm of the sums, which nothing reads, belongs to it.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import numpy as np

from tenonnx_cuda.cudnn.descriptors import Backend
from tenonnx_cuda.cudnn.operations import (
    ADD,
    AND,
    BOOLEAN,
    CUDNN_TYPES,
    DIVIDE,
    EXP,
    GREATER,
    GREATER_OR_EQUAL,
    INDEX,
    INT32,
    LARGEST,
    LESS,
    LOG,
    MULTIPLY,
    SELECT,
    SUBTRACT,
    SUM,
    TANH,
    Operations,
    Tensor,
    Value,
)
from tenonnx_cuda.cudnn.plans import NONDETERMINISTIC, REDUCED_SUMS, Graph, Notes

# The names of arrays; the last two are lengths, or numbers of the host where there are none.
Q, K, V, Y, BIAS, QUERIES, KEYS = range(1, 8)

# The names of numbers.
SCALE, CAP, HIDDEN, LEFT, RIGHT = range(8, 13)

# Axes of scores: queries, and keys.
ROW, COLUMN = 2, 3

# Forms: with kernels that serve all lengths, and with one that is compiled for these.
SERVES_ALL, FOR_THIS = 1, 0

# Bytes of working memory at most.
MAX_WORKSPACE_BYTES: Final = 256 << 20


class Attention(NamedTuple):
    """A computation of attention: the key of its plan.

    Attributes:
        dtype: The element type.
        q, k, v, y: The arrays: (batch, heads, steps, size).
        scale: Of scores.
        softcap: What scores saturate at; 0 for none.
        bias: (batch or 1, heads or 1, queries or 1, keys), which is added, if anything.
        lengths: There are numbers of queries and keys for each sequence.
        aligned: The last query stands at the last key; otherwise the first one at the first.
        left: Keys before its own that a query sees; negative for all.
        right: Keys after its own that a query sees; negative for all.
        compiled: A kernel may be compiled for these lengths alone, which takes about a second.
        measured: Another kernel would have to be compiled.
        workspace: Bytes of working memory at most.
    """

    dtype: np.dtype[Any]
    q: Tensor
    k: Tensor
    v: Tensor
    y: Tensor
    scale: float
    softcap: float = 0.0
    bias: Tensor | None = None
    lengths: bool = False
    aligned: bool = False
    left: int = -1
    right: int = -1
    compiled: bool = False
    measured: bool = False
    workspace: int = MAX_WORKSPACE_BYTES

    def __str__(self) -> str:
        how = "" if self.compiled else " that needs no kernel of its own (sdpa_kernel=8 allows it)"
        return f"attention of {self.q.shape} to {self.k.shape}{how}"

    @property
    def family(self) -> Hashable:
        """The properties that a kernel is compiled for."""
        shapes = [(x.shape[1], x.shape[3]) for x in (self.q, self.k, self.v)]
        one = None if self.bias is None else tuple(n == 1 for n in self.bias.shape)
        flags = (self.softcap > 0, self.left >= 0, self.right >= 0, self.right > 0, self.compiled)
        return (type(self), self.dtype, *shapes, one, self.lengths, self.aligned, *flags)

    @property
    def forms(self) -> tuple[int, ...]:
        """Kernels that serve all lengths are liked better; some versions of cuDNN have none."""
        return (SERVES_ALL, FOR_THIS) if self.compiled else (SERVES_ALL,)

    def graph(self, backend: Backend, form: int) -> Graph:
        """Return all of it.

        Raises:
            CuDNNError: cuDNN has no such attribute.
        """
        drawing = Drawing(self, Operations(backend))
        drawing.draw()
        optional = ((BIAS, self.bias is not None), *((n, self.lengths) for n in (QUERIES, KEYS)))
        names = (Q, K, V, Y, *(name for name, present in optional if present))
        return Graph(drawing.operations, names, drawing.numbers, form == SERVES_ALL)

    def suits(self, notes: Notes) -> bool:
        """Return whether an engine sums in float32, and always gives the same result."""
        return notes.numerical.isdisjoint({REDUCED_SUMS, NONDETERMINISTIC})


class Drawing:
    """Attention's operations, and the numbers in them.

    Args:
        what: Attention.
        operations: Where they go.

    Attributes:
        operations: Where they go.
        numbers: By name.
    """

    def __init__(self, what: Attention, operations: Operations) -> None:
        self._what = what
        self.operations = operations
        self.numbers: dict[int, ctypes.c_float | ctypes.c_int32] = {}
        self._counts: dict[int, Value] = {}

    def draw(self) -> None:
        """Draw all of it."""
        what, operations = self._what, self.operations
        kind = CUDNN_TYPES[what.dtype]
        arrays = ((Q, what.q), (K, _turned(what.k)), (V, what.v), (Y, what.y))
        q, k, v, y = (operations.array(name, where, kind) for name, where in arrays)
        scores = operations.inside(Tensor.without_gaps((*what.q.shape[:3], what.k.shape[2])))
        operations.matmul(q, k, scores, lengths=self._lengths(M=QUERIES, N=KEYS))
        scores = operations.pointwise(MULTIPLY, scores, self._number(SCALE, what.scale))
        if what.softcap:
            cap = self._number(CAP, what.softcap)
            scores = operations.pointwise(DIVIDE, scores, cap)
            scores = operations.pointwise(TANH, scores)
            scores = operations.pointwise(MULTIPLY, scores, cap)
        if what.bias is not None:
            scores = operations.pointwise(ADD, scores, operations.array(BIAS, what.bias, kind))
        shares = self._softmax(self._masked(scores), kind)
        operations.matmul(shares, v, y, lengths=self._lengths(M=QUERIES, K=KEYS))

    def _number(self, name: int, value: float) -> Value:
        self.numbers[name] = ctypes.c_float(value)
        return self.operations.number(name)

    def _whole_number(self, name: int, value: int) -> Value:
        self.numbers[name] = ctypes.c_int32(value)
        return self.operations.number(name, INT32)

    def _masked(self, scores: Value) -> Value:
        """Hide keys that are none of a sequence's, or too far to the right, or to the left."""
        what = self._what
        masks = ((what.lengths, self._is_inside), (what.right >= 0, self._not_after),
                 (what.left >= 0, self._not_before))  # fmt: skip
        for wanted, seen in masks:
            if wanted:
                scores = self.operations.pointwise(SELECT, scores, self._hidden, seen(scores))
        return scores

    @functools.cached_property
    def _hidden(self) -> Value:
        return self._number(HIDDEN, -math.inf)

    def _is_inside(self, scores: Value) -> Value:
        rows = self._compared(LESS, self._index(scores, ROW), self._count(QUERIES))
        columns = self._compared(LESS, self._index(scores, COLUMN), self._count(KEYS))
        return self._compared(AND, rows, columns)

    def _not_after(self, scores: Value) -> Value:
        row, column = (self._index(scores, axis) for axis in (ROW, COLUMN))
        if self._what.aligned:
            row = self._plus(row, (ADD, self._count(KEYS)), (SUBTRACT, self._count(QUERIES)))
        if self._what.right > 0:
            row = self._plus(row, (ADD, self._whole_number(RIGHT, self._what.right)))
        return self._compared(GREATER_OR_EQUAL, row, column)

    def _not_before(self, scores: Value) -> Value:
        row, column = (self._index(scores, axis) for axis in (ROW, COLUMN))
        column = self._plus(column, (ADD, self._whole_number(LEFT, self._what.left + 1)))
        if self._what.aligned:
            column = self._plus(column, (SUBTRACT, self._count(KEYS)), (ADD, self._count(QUERIES)))
        return self._compared(GREATER, column, row)

    def _index(self, scores: Value, axis: int) -> Value:
        return self.operations.pointwise(INDEX, scores, kind=INT32, AXIS=axis)

    def _compared(self, mode: int, one: Value, other: Value) -> Value:
        return self.operations.pointwise(mode, one, other, kind=BOOLEAN)

    def _plus(self, index: Value, *changes: tuple[int, Value]) -> Value:
        for mode, number in changes:
            index = self.operations.pointwise(mode, index, number, kind=INT32)
        return index

    def _count(self, name: int) -> Value:
        """Return how many queries or keys there are: of each sequence, or of all."""
        what, heads = self._what, self._what.q if name == QUERIES else self._what.k
        if name not in self._counts and what.lengths:
            each = Tensor((what.q.shape[0], 1, 1, 1), (1, 1, 1, 1))
            self._counts[name] = self.operations.array(name, each, INT32)
        elif name not in self._counts:
            self._counts[name] = self._whole_number(name, heads.shape[2])
        return self._counts[name]

    def _lengths(self, **counts: int) -> dict[str, Value]:
        """Return how long a product's axes really are, if sequences say."""
        given = counts if self._what.lengths else {}
        return {axis: self._count(name) for axis, name in given.items()}

    def _softmax(self, scores: Value, kind: int) -> Value:
        operations = self.operations
        most = operations.reduce(LARGEST, scores)
        powers = operations.pointwise(EXP, operations.pointwise(SUBTRACT, scores, most))
        sums = operations.reduce(SUM, powers)
        operations.pointwise(ADD, most, operations.pointwise(LOG, sums))
        return operations.pointwise(DIVIDE, powers, sums, kind=kind)


def _turned(k: Tensor) -> Tensor:
    """Return keys as the second factor of a product."""
    (b, h, s, d), (by_b, by_h, by_s, by_d) = k
    return Tensor((b, h, d, s), (by_b, by_h, by_d, by_s))
