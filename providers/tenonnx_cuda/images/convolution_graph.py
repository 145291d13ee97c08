"""What cuDNN is told of a convolution: a graph of operations, each of the result of the one before.

A sum, a bias and an activation may follow the convolution, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from tenonnx_cuda.images.cudnn import Backend, Descriptor

ELEMENTS: Final = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 2,
    np.dtype(ml_dtypes.bfloat16): 9,
}
"""``cudnnDataType_t``: CUDNN_DATA_FLOAT, CUDNN_DATA_HALF and CUDNN_DATA_BFLOAT16."""

FLOAT: Final = 0
CROSS_CORRELATION: Final = 1

ADD, RELU = 0, 100
"""CUDNN_POINTWISE_ADD and CUDNN_POINTWISE_RELU_FWD."""

PROPAGATE: Final = 1
"""CUDNN_PROPAGATE_NAN: of a NaN, a ReLU makes a NaN."""

WORKSPACE: Final = 256 << 20
LITTLE_WORKSPACE: Final = 32 << 20
"""Bytes of working memory that a plan may take, and without ``cudnn_conv_use_max_workspace``."""

ALIGNMENT: Final = 16
"""What tensors' addresses are a multiple of."""

X, W, Y, BIAS, SUM = range(1, 6)
"""What tensors are called."""

INSIDE: Final = 16
"""Results that are not written are called this and up."""


class Tensor(NamedTuple):
    """Where the elements of an array are, which begins at a multiple of ``ALIGNMENT``."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> Tensor:
        """Describes an array."""
        width = array.itemsize
        return cls(tuple(array.shape), tuple(stride // width for stride in array.strides))

    @classmethod
    def laid(cls, shape: tuple[int, ...], *, last: bool) -> Tensor:
        """Describes an array without gaps whose channels are last, or where they are."""
        order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis], step = step, step * shape[axis]
        return cls(shape, tuple(strides))

    def padded(self) -> Tensor:
        """Returns the same with at least two spatial axes, which cuDNN wants."""
        if len(self.shape) != 3:
            return self
        (n, c, w), (by_n, by_c, by_w) = self
        return Tensor((n, c, 1, w), (by_n, by_c, w * by_w, by_w))


class Convolution(NamedTuple):
    """What is computed; all that a plan depends on.

    Attributes:
        dtype: The element type.
        x, w, y: The arrays; of a transposed one x is the smaller image.
        strides, dilations, begins, ends: Of the windows.
        transposed: Goes the other way.
        tf32: Factors may be rounded to 10 bits.
        z: What is added, if anything.
        bias: A number for each map is added.
        relu: Results below zero become zero.
        measured: The fastest plan is looked for; otherwise cuDNN's first choice is taken.
        workspace: Bytes of working memory at most.
    """

    dtype: np.dtype[Any]
    x: Tensor
    w: Tensor
    y: Tensor
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    transposed: bool = False
    tf32: bool = True
    z: Tensor | None = None
    bias: bool = False
    relu: bool = False
    measured: bool = True
    workspace: int = WORKSPACE

    @property
    def endings(self) -> tuple[int, ...]:
        """What follows the convolution: ``SUM``, ``BIAS``, and ``Y`` for the activation.

        In another order, or after a transposed one, cuDNN 9 has no fast engine.
        """
        has = ((SUM, self.z is not None), (BIAS, self.bias), (Y, self.relu))
        return tuple(name for name, present in has if present and not self.transposed)


def graph_of(backend: Backend, handle: Any, what: Convolution, ending: int) -> Descriptor:
    """Returns cuDNN's graph of a convolution and as many of its endings.

    Raises:
        CuDNNError: An attribute is none that cuDNN knows.
    """
    kind = ELEMENTS[what.dtype]

    def tensor(name: int, where: Tensor, *, inside: bool = False) -> Descriptor:
        shape, strides = where.padded()
        return backend.make(
            "TENSOR", DATA_TYPE=FLOAT if inside else kind, DIMENSIONS=shape, STRIDES=strides,
            UNIQUE_ID=name, BYTE_ALIGNMENT=ALIGNMENT, IS_VIRTUAL=inside,
        )  # fmt: skip

    endings = what.endings[:ending]
    results = [
        *(tensor(INSIDE + i, what.y, inside=True) for i in range(ending)),
        tensor(Y, what.y),
    ]
    x, w = tensor(X, what.x), tensor(W, what.w)
    operations = [_convolution(backend, what, x, w, results[0])]
    for name, before, after in zip(endings, results, results[1:], strict=False):
        if name == Y:
            operations.append(_relu(backend, before, after))
            continue
        other = tensor(name, what.z if name == SUM and what.z else _per_map(what.y))
        operations.append(_sum(backend, before, other, after))
    return backend.make("OPERATIONGRAPH", HANDLE=handle, OPS=operations)


def _per_map(y: Tensor) -> Tensor:
    """Returns where the bias of a result is."""
    maps = y.shape[1]
    ones = (1,) * (len(y.shape) - 2)
    return Tensor((1, maps, *ones), (maps, 1, *(maps for _ in ones)))


def _two(numbers: Sequence[int], first: int) -> tuple[int, ...]:
    """Returns the numbers of two axes or more: of one axis, another one's before them."""
    return (first, *numbers) if len(numbers) == 1 else tuple(numbers)


def _convolution(
    backend: Backend, what: Convolution, x: Descriptor, w: Descriptor, y: Descriptor
) -> Descriptor:
    described = backend.make(
        "CONVOLUTION",
        COMP_TYPE=FLOAT,
        CONV_MODE=CROSS_CORRELATION,
        SPATIAL_DIMS=max(2, len(what.strides)),
        FILTER_STRIDES=_two(what.strides, 1),
        DILATIONS=_two(what.dilations, 1),
        PRE_PADDINGS=_two(what.begins, 0),
        POST_PADDINGS=_two(what.ends, 0),
    )
    shared = {"ALPHA": 1.0, "BETA": 0.0, "CONV_DESC": described, "W": w}
    if what.transposed:
        kind = "OPERATION_CONVOLUTION_BACKWARD_DATA"
        return backend.make(kind, DX=y, DY=x, **shared)
    return backend.make("OPERATION_CONVOLUTION_FORWARD", X=x, Y=y, **shared)


def _relu(backend: Backend, before: Descriptor, after: Descriptor) -> Descriptor:
    described = backend.make("POINTWISE", MODE=RELU, MATH_PREC=FLOAT, NAN_PROPAGATION=PROPAGATE)
    kind = "OPERATION_POINTWISE"
    return backend.make(kind, PW_DESCRIPTOR=described, XDESC=before, YDESC=after)


def _sum(backend: Backend, before: Descriptor, other: Descriptor, after: Descriptor) -> Descriptor:
    described = backend.make("POINTWISE", MODE=ADD, MATH_PREC=FLOAT)
    operands = {"XDESC": before, "BDESC": other, "YDESC": after}
    return backend.make("OPERATION_POINTWISE", PW_DESCRIPTOR=described, **operands)
