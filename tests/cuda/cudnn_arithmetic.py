"""cuDNN's graphs, computed in float64 from the memory that their descriptors name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tenonnx_cuda.cudnn.operations import CUDNN_TYPES

DTYPES = {number: dtype for dtype, number in CUDNN_TYPES.items()}
KINDS = {0: np.float64, 4: np.int64, 11: np.bool_}

TILE = 256
"""Keys that cuDNN loads at once."""
"""The element type of results inside a graph."""


@dataclass(eq=False)
class Described:
    """A descriptor: its kind, and attributes by their names without its prefix."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)
    done: bool = False

    def __getitem__(self, name: str) -> Any:
        """The only value of an attribute."""
        (value,) = self.attributes[name]
        return value


def compute(operations: Sequence[Described], pointers: dict[int, int]) -> None:
    """Do a graph's operations in order; what is inside of it has no memory."""
    Run(pointers).do(operations)


class Run:
    """One run of a graph.

    Args:
        pointers: Where arrays begin, and numbers on the host.
    """

    def __init__(self, pointers: dict[int, int]) -> None:
        self._pointers = pointers
        self._inside: dict[int, Any] = {}

    def do(self, operations: Sequence[Described]) -> None:
        """Do operations."""
        for operation in operations:
            if operation.kind == "OPERATION_POINTWISE":
                self.write(operation["YDESC"], self.pointwise(operation))
            elif operation.kind == "OPERATION_MATMUL":
                self.write(operation["CDESC"], self.matmul(operation))
            elif operation.kind == "OPERATION_REDUCTION":
                self.write(operation["YDESC"], self.reduction(operation))
            else:
                result = operation["DX" if operation.kind.endswith("DATA") else "Y"]
                self.write(result, convolution(operation, self.read))

    def read(self, tensor: Described) -> Any:
        """Return a value's elements."""
        name = tensor["UNIQUE_ID"]
        if tensor.attributes.get("IS_VIRTUAL") == [True]:
            return self._inside[name]
        stored = memory(tensor, self._pointers)
        return stored.astype(np.int64 if stored.dtype == np.int32 else np.float64)

    def write(self, tensor: Described, value: Any) -> None:
        """Keep a result, or put it into memory."""
        assert value.shape == tuple(tensor.attributes["DIMENSIONS"])
        if tensor.attributes.get("IS_VIRTUAL") == [True]:
            kind = tensor["DATA_TYPE"]
            self._inside[tensor["UNIQUE_ID"]] = value.astype(KINDS.get(kind, np.float64))
        else:
            to = memory(tensor, self._pointers)
            to[...] = value.astype(to.dtype)

    def pointwise(self, operation: Described) -> Any:
        """Do something with each element."""
        how = operation["PW_DESCRIPTOR"]
        mode, precision = how["MODE"], how["MATH_PREC"]
        wanted = operation["YDESC"]["DATA_TYPE"]
        assert precision == (wanted if wanted in (4, 11) else 0)
        x = self.read(operation["XDESC"])
        if mode == 501:
            return np.broadcast_to(np.moveaxis(np.arange(x.shape[how["AXIS"]])[:, None, None, None],
                                               0, how["AXIS"]), x.shape)  # fmt: skip
        if mode == 100:
            assert how["NAN_PROPAGATION"] == 1
        names = ("BDESC", "TDESC")
        others = [self.read(operation[n]) for n in names if n in operation.attributes]
        with np.errstate(all="ignore"):
            return MODES[mode](x, *others)

    def matmul(self, operation: Described) -> Any:
        """Multiply; beyond given lengths a result is whatever was there, and may be NaN."""
        assert operation["DESC"]["COMP_TYPE"] == 0
        a, b = self.read(operation["ADESC"]), self.read(operation["BDESC"])
        b = np.repeat(b, a.shape[1] // b.shape[1], 1)
        result = np.empty((*a.shape[:3], b.shape[3]))
        for i in range(len(a)):
            m, n, k = (self.length(operation, axis, i) for axis in "MNK")
            result[i] = np.nan
            result[i, :, :m, :n] = a[i, :, :m, :k] @ b[i, :, :k, :n]
            if k is not None:  # the rest of a tile is multiplied by 0, and a NaN stays
                rest = b[i, :, k : -(-k // TILE) * TILE, :n]
                result[i, :, :m, :n] += 0 * rest.sum(1, keepdims=True)
        return result

    def length(self, operation: Described, axis: str, batch: int) -> int | None:
        """Return how long an axis really is, if an array says."""
        name = f"GEMM_{axis}_OVERRIDE_DESC"
        if name not in operation.attributes:
            return None
        return int(self.read(operation[name])[batch, 0, 0, 0])

    def reduction(self, operation: Described) -> Any:
        """Reduce the last axis."""
        how = operation["DESC"]
        assert how["COMP_TYPE"] == 0
        reduce: Any = {0: np.sum, 3: np.max}[how["OPERATOR"]]
        return reduce(self.read(operation["XDESC"]), axis=-1, keepdims=True)


MODES: dict[int, Callable[..., Any]] = {
    0: np.add,
    1: np.multiply,
    6: np.divide,
    9: np.subtract,
    13: np.exp,
    15: np.log,
    100: lambda x: np.where(x < 0, 0, x),
    101: np.tanh,
    302: np.greater,
    303: np.greater_equal,
    304: np.less,
    400: np.logical_and,
    601: lambda x, other, seen: np.where(seen, x, other),
}
"""By the header's numbers, which these are compared with elsewhere."""


def memory(tensor: Described, pointers: dict[int, int]) -> Any:
    """Return a tensor's memory."""
    given, address = tensor.attributes, pointers[tensor["UNIQUE_ID"]]
    assert address % given["BYTE_ALIGNMENT"][0] == 0
    dtype, shape = DTYPES[given["DATA_TYPE"][0]], given["DIMENSIONS"]
    assert len(shape) >= 4
    steps = given["STRIDES"]
    span = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + 1
    interface = {"version": 3, "data": (address, False), "shape": (span * dtype.itemsize,),
                 "typestr": "|u1"}  # fmt: skip
    flat = np.asarray(type("At", (), {"__array_interface__": interface})()).view(dtype)
    return as_strided(flat, shape, [dtype.itemsize * step for step in steps])


def convolution(operation: Described, read: Callable[[Described], Any]) -> Any:
    """Compute a convolution, or go back through one."""
    how = operation["CONV_DESC"].attributes
    assert (operation["ALPHA"], operation["BETA"]) == (1, 0)
    assert (how["COMP_TYPE"], how["CONV_MODE"]) == ([0], [1])
    w = read(operation["W"])
    back = operation.kind.endswith("DATA")
    large = operation["DX" if back else "X"].attributes["DIMENSIONS"]
    small = operation["DY" if back else "Y"].attributes["DIMENSIONS"]
    padding = list(zip(how["PRE_PADDINGS"], how["POST_PADDINGS"], strict=True))
    assert how["SPATIAL_DIMS"] == [len(padding)]
    for n, m, k, stride, step, (low, high) in zip(
        large[2:], small[2:], w.shape[2:], how["FILTER_STRIDES"], how["DILATIONS"], padding,
        strict=True,
    ):  # fmt: skip
        assert (n + low + high - (k - 1) * step - 1) // stride + 1 == m
    groups = large[1] // w.shape[1]
    weights = w.reshape(groups, -1, *w.shape[1:])
    around = [(0, 0), (0, 0), *padding]
    whole = np.zeros([n + sum(p) for n, p in zip(large, around, strict=True)])
    inner = tuple(slice(a, a + n) for n, (a, _) in zip(large, around, strict=True))
    given = read(operation["DY" if back else "X"])
    result = np.zeros((large[0], groups, weights.shape[1], *small[2:]))
    if not back:
        whole[inner] = given
    split = whole.reshape(large[0], groups, -1, *whole.shape[2:])
    for tap, where in taps(w.shape[2:], small[2:], how):
        factor = weights[(..., *tap)]
        if back:
            rows = given.reshape(large[0], groups, -1, *small[2:])
            split[(..., *where)] += np.einsum("ngm...,gmc->ngc...", rows, factor)
        else:
            result += np.einsum("ngc...,gmc->ngm...", split[(..., *where)], factor)
    return whole[inner] if back else result.reshape(small)


def taps(
    kernel: Sequence[int], output: Sequence[int], how: dict[str, Any]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    for tap in itertools.product(*map(range, kernel)):
        yield (
            tap,
            tuple(
                slice(t * step, t * step + (m - 1) * stride + 1, stride)
                for t, m, step, stride in zip(
                    tap, output, how["DILATIONS"], how["FILTER_STRIDES"], strict=True
                )
            ),
        )
