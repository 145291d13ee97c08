"""A convolution as a graph of cuDNN: operations, each on the result of the one before.

A sum, a bias and an activation may follow the convolution, in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tenonnx_cuda.cudnn.descriptors import Backend, Descriptor
from tenonnx_cuda.cudnn.operations import (
    ADD,
    CUDNN_TYPES,
    FLOAT,
    PROPAGATE,
    RELU,
    Operations,
    Tensor,
    Value,
)
from tenonnx_cuda.cudnn.plans import (
    DOWN_CONVERT,
    NONDETERMINISTIC,
    REDUCED_SUMS,
    RUNTIME_COMPILATION,
    TENSOR_CORE,
    TRANSFORMED,
    Graph,
    Notes,
)

CROSS_CORRELATION: Final = 1

MAX_WORKSPACE_BYTES: Final = 256 << 20
# Bytes of working memory that a plan may take, and without ``cudnn_conv_use_max_workspace``.
LITTLE_WORKSPACE: Final = 32 << 20

# The names of arrays.
X, W, Y, BIAS, SUM = range(1, 6)


class Convolution(NamedTuple):
    """A computation of a convolution: the key of its plan.

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
    workspace: int = MAX_WORKSPACE_BYTES

    def __str__(self) -> str:
        return f"a convolution of {self.x.shape} by {self.w.shape}"

    @property
    def family(self) -> Convolution:
        """Each has ways of its own."""
        return self

    @property
    def endings(self) -> tuple[int, ...]:
        """The steps after the convolution: ``SUM``, ``BIAS``, and ``Y`` for the activation.

        In another order, or after a transposed one, cuDNN 9 has no fast engine.
        """
        has = ((SUM, self.z is not None), (BIAS, self.bias), (Y, self.relu))
        return tuple(name for name, present in has if present and not self.transposed)

    @property
    def forms(self) -> range:
        """The number of endings that are done: one without an engine is left out from the end."""
        return range(len(self.endings), -1, -1)

    def graph(self, backend: Backend, form: int) -> Graph:
        """Return a convolution and as many of its endings.

        Raises:
            CuDNNError: cuDNN has no such attribute.
        """
        kind, operations, endings = (
            CUDNN_TYPES[self.dtype],
            Operations(backend),
            self.endings[:form],
        )
        y = padded(self.y)
        results = [*(operations.inside(y) for _ in endings), operations.array(Y, y, kind)]
        x, w = (operations.array(n, padded(at), kind) for n, at in ((X, self.x), (W, self.w)))
        _convolve(backend, operations, self, x, w, results[0])
        for name, before, after in zip(endings, results, results[1:], strict=False):
            if name == Y:
                operations.pointwise(RELU, before, to=after, NAN_PROPAGATION=PROPAGATE)
                continue
            where = self.z if name == SUM and self.z else _per_map(self.y)
            other = operations.array(name, padded(where), kind)
            operations.pointwise(ADD, before, other, to=after)
        return Graph(operations, (X, W, Y, *(name for name in endings if name != Y)))

    def suits(self, notes: Notes) -> bool:
        """Return whether an engine is as exact as it should be, and always gives the same result.

        One that is compiled for each plan would take seconds, where there may be dozens of plans.
        """
        refused = {REDUCED_SUMS, NONDETERMINISTIC}
        if self.dtype == np.float32 and not self.tf32:
            refused |= {TENSOR_CORE, DOWN_CONVERT, *TRANSFORMED}
        ready = RUNTIME_COMPILATION not in notes.behavior
        return ready and notes.numerical.isdisjoint(refused)


def padded(where: Tensor) -> Tensor:
    """Return the same with at least two spatial axes, as cuDNN requires."""
    if len(where.shape) != 3:
        return where
    (n, c, w), (by_n, by_c, by_w) = where
    return Tensor((n, c, 1, w), (by_n, by_c, w * by_w, by_w))


def _per_map(y: Tensor) -> Tensor:
    """Return where the bias of a result is."""
    maps = y.shape[1]
    ones = (1,) * (len(y.shape) - 2)
    return Tensor((1, maps, *ones), (maps, 1, *(maps for _ in ones)))


def _two(numbers: Sequence[int], first: int) -> tuple[int, ...]:
    """Return the numbers of two axes or more: of one axis, another one's before them."""
    return (first, *numbers) if len(numbers) == 1 else tuple(numbers)


def _convolve(
    backend: Backend, operations: Operations, what: Convolution, x: Value, w: Value, y: Value
) -> None:
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
    names = ("DX", "DY") if what.transposed else ("Y", "X")
    results: dict[str, Descriptor] = dict(zip(names, (y.descriptor, x.descriptor), strict=True))
    kind = f"CONVOLUTION_{'BACKWARD_DATA' if what.transposed else 'FORWARD'}"
    shared = {"ALPHA": 1.0, "BETA": 0.0, "CONV_DESC": described, "W": w.descriptor}
    operations.add(kind, **shared, **results)
