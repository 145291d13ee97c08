"""The operations of one of cuDNN's graphs, which are put together one after another."""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from tenonnx_cuda.cudnn.descriptors import Backend, Descriptor

# CUDNN_DATA_FLOAT, CUDNN_DATA_INT32 and CUDNN_DATA_BOOLEAN.
FLOAT, INT32, BOOLEAN = 0, 4, 11

# ``cudnnDataType_t`` of arrays' elements.
CUDNN_TYPES: Final = {
    np.dtype(np.float32): FLOAT,
    np.dtype(np.float16): 2,
    np.dtype(ml_dtypes.bfloat16): 9,
    np.dtype(np.int32): INT32,
}

# Alignment of the arrays' addresses.
ADDRESS_ALIGNMENT_BYTES: Final = 16

# Results that are not written are called this and up.
FIRST_VIRTUAL_ID: Final = 64

ADD, MULTIPLY, DIVIDE, SUBTRACT, EXP, LOG = 0, 1, 6, 9, 13, 15
RELU, TANH = 100, 101
GREATER, GREATER_OR_EQUAL, LESS, AND = 302, 303, 304, 400
# `CUDNN_POINTWISE_*`: what is done with each element, or where it is along an axis.
INDEX, SELECT = 501, 601

# CUDNN_REDUCE_TENSOR_ADD and CUDNN_REDUCE_TENSOR_MAX.
SUM, LARGEST = 0, 3

# CUDNN_PROPAGATE_NAN: of a NaN, a ReLU makes a NaN.
PROPAGATE: Final = 1


class Tensor(NamedTuple):
    """The places of an array's elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> Tensor:
        """Describe an array."""
        width = array.itemsize
        return cls(tuple(array.shape), tuple(stride // width for stride in array.strides))

    @classmethod
    def without_gaps(cls, shape: tuple[int, ...], *, last: bool = False) -> Tensor:
        """Describe an array without gaps whose second axis is last, or where it is."""
        order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis], step = step, step * shape[axis]
        return cls(shape, tuple(strides))


class Value(NamedTuple):
    """An input or a result of an operation.

    Attributes:
        descriptor: cuDNN's.
        where: Its shape and strides.
    """

    descriptor: Descriptor
    where: Tensor


class Operations:
    """Operations, in the order in which they are asked for.

    Args:
        backend: cuDNN.

    Attributes:
        made: Their descriptors.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._names = itertools.count(FIRST_VIRTUAL_ID)
        self.made: list[Descriptor] = []

    def array(self, name: int, where: Tensor, kind: int) -> Value:
        """Return an array in the device's memory."""
        alignment = 4 if kind == INT32 else ADDRESS_ALIGNMENT_BYTES
        return self._value(where, kind, UNIQUE_ID=name, BYTE_ALIGNMENT=alignment)

    def number(self, name: int, kind: int = FLOAT) -> Value:
        """Return a number that the host has."""
        more = {"BYTE_ALIGNMENT": 4, "IS_BY_VALUE": True}
        return self._value(Tensor((1,) * 4, (1,) * 4), kind, UNIQUE_ID=name, **more)

    def inside(self, where: Tensor, kind: int = FLOAT) -> Value:
        """Return a result that is not written."""
        more = {"BYTE_ALIGNMENT": ADDRESS_ALIGNMENT_BYTES, "IS_VIRTUAL": True}
        return self._value(where, kind, UNIQUE_ID=next(self._names), **more)

    def _value(self, where: Tensor, kind: int, **attributes: Any) -> Value:
        shape, strides = where
        described = self._backend.make(
            "TENSOR", DATA_TYPE=kind, DIMENSIONS=shape, STRIDES=strides, **attributes
        )
        return Value(described, where)

    def pointwise(
        self,
        mode: int,
        x: Value,
        *others: Value,
        kind: int = FLOAT,
        to: Value | None = None,
        **attributes: Any,
    ) -> Value:
        """Do something with tensors of the same shape and strides.

        Args:
            mode: What.
            x: The first operand.
            others: The second, and of ``SELECT`` the condition.
            kind: Of the results, if they are not written.
            to: Where they are written.
            attributes: Of the mode.
        """
        result = self.inside(x.where, kind) if to is None else to
        precision = kind if kind in (INT32, BOOLEAN) else FLOAT
        described = self._backend.make("POINTWISE", MODE=mode, MATH_PREC=precision, **attributes)
        operands = zip(("XDESC", "BDESC", "TDESC"), (x, *others), strict=False)
        given = {name: value.descriptor for name, value in operands}
        self.add("POINTWISE", PW_DESCRIPTOR=described, YDESC=result.descriptor, **given)
        return result

    def matmul(
        self, a: Value, b: Value, c: Value, *, lengths: dict[str, Value] | None = None
    ) -> Value:
        """Multiply the last two axes, with sums in float32.

        Args:
            a: A factor.
            b: The other one; fewer matrices serve several.
            c: The result.
            lengths: By ``M``, ``N`` and ``K``, how long these really are.
        """
        described = self._backend.make("MATMUL", COMP_TYPE=FLOAT)
        names = ((f"GEMM_{axis}_OVERRIDE_DESC", n) for axis, n in (lengths or {}).items())
        more = {name: value.descriptor for name, value in names}
        factors = {"ADESC": a.descriptor, "BDESC": b.descriptor, "CDESC": c.descriptor}
        self.add("MATMUL", DESC=described, **factors, **more)
        return c

    def reduce(self, operator: int, x: Value, *, to: Value | None = None) -> Value:
        """Reduce the last axis, in float32; ``to`` is where the result is written."""
        result = self.inside(Tensor.without_gaps((*x.where.shape[:-1], 1))) if to is None else to
        described = self._backend.make("REDUCTION", OPERATOR=operator, COMP_TYPE=FLOAT)
        self.add("REDUCTION", DESC=described, XDESC=x.descriptor, YDESC=result.descriptor)
        return result

    def add(self, kind: str, **attributes: Any) -> None:
        """Append an operation of a kind."""
        self.made.append(self._backend.make(f"OPERATION_{kind}", **attributes))
