"""Softmax over any axis, layer and root-mean-square normalization over the last one."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.lower import is_constant
from tenonnx_array.residual_norm import RESIDUAL_NORMS, find_sum
from tenonnx_cpu.buffers import F32, contiguous, empty, is_half
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead
from tenonnx_cpu.elementwise.kernels.operations import ADD, FLOAT_CODES
from tenonnx_cpu.elementwise.typed import APPLY, code_of, launch
from tenonnx_cpu.fuse import RESIDUAL, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, share_of, worker_shares
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.norm.kernels import SPAN

if TYPE_CHECKING:
    import onnx_ir as ir

SOFTMAX = JitKernel("norm.norms", "softmax")
NORMALIZE = JitKernel("norm.norms", "normalize_all")

NO_NUMBERS = np.zeros(0, np.uint8)
NO_ROWS = np.zeros((0, 0), np.uint8)

SOFTMAX_DTYPES = (F32, np.dtype(np.float64))

# Rows of float32 that a worker needs for 16-bit floats: scale, bias, and two summands.
WIDENED_ROWS = 4

# Elements that are worth a second thread.
MIN_NORMALIZED_ELEMENTS_PER_THREAD = 1 << 14


@specialize("Softmax", "LogSoftmax")
def specialize_softmax(site: Site, plain: Call) -> Call | None:
    """Take float32 and float64 along any axis; before version 13, along all from one on."""
    axis = site.attribute("axis", -1 if (site.node.version or 1) >= 13 else 1)
    old = (site.node.version or 1) < 13
    logarithm = int(site.node.op_type == "LogSoftmax")
    SOFTMAX.request()
    return Capturable(SoftmaxCall(axis, old, logarithm, site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class SoftmaxCall:
    """A softmax, or its logarithm.

    Attributes:
        axis: Along which.
        old: Whether it is an operator before version 13.
        logarithm: Whether the logarithm is wanted.
        threads: How many to use at most.
        plain: Computes the same from the same array.
    """

    axis: int
    old: bool
    logarithm: int
    threads: int
    plain: Call

    def __call__(self, x: Any) -> Any:
        """Return a launch, or the result."""
        run, axis, rank = SOFTMAX.run, self.axis, x.ndim
        if run is None or x.dtype not in SOFTMAX_DTYPES or not x.size or not -rank <= axis < rank:
            return self.plain(x)
        axis %= rank
        # Before version 13, all axes from that one on are one.
        inner = 1 if self.old else math.prod(x.shape[axis + 1 :])
        outer = math.prod(x.shape[:axis])
        y = empty(x.shape, x.dtype)
        units = outer * -(-inner // SPAN)
        grain, team = shared_out(units, x.size, MIN_NORMALIZED_ELEMENTS_PER_THREAD, self.threads)
        shape = outer, x.size // (outer * inner), inner
        rows = [each.reshape(shape).view(np.uint8) for each in (contiguous(x), y)]
        return Launch(run, (*rows, x.itemsize, self.logarithm, grain, team), y)


@cacheable
class Normalize:
    """Normalizes the last axis of arrays of floats.

    Args:
        epsilon: The summand of the mean square.
        centered: Whether the mean is subtracted.
        threads: How many threads to use at most.
        absent: Outputs that are not made, such as mean and deviation.
        adds: Whether the sum that is normalized is an output, too.
    """

    def __init__(
        self, epsilon: float, centered: bool, threads: int, absent: int = 0, *, adds: bool = False
    ) -> None:
        self._epsilon = epsilon
        self._centred = int(centered)
        self._threads = threads
        self._absent = (None,) * absent
        self._adds = adds
        NORMALIZE.request()

    def __call__(self, x: Any, other: Any, scale: Any, bias: Any) -> Any:
        """Return a launch that normalizes ``x + other``, or results; ``None`` for numpy."""
        run, dtype = NORMALIZE.run, x.dtype
        element = code_of(dtype)
        if run is None or element not in FLOAT_CODES or scale.dtype != dtype:
            return None
        if not x.ndim or not x.size:
            return None
        width = x.shape[-1]
        if scale.shape != (width,):
            return None
        if bias is not None and (bias.shape != (width,) or bias.dtype != dtype):
            return None
        if other is not None and (other.shape != x.shape or other.dtype != dtype):
            return None
        shape = (x.size // width, width)
        grain, team = shared_out(
            shape[0], x.size, MIN_NORMALIZED_ELEMENTS_PER_THREAD, self._threads
        )
        share = share_of(4 * WIDENED_ROWS * width, np.uint8) if is_half(dtype) else 0
        (memory,) = pieces(worker_shares(share, team, np.uint8))
        y = empty(x.shape, dtype)
        total = y if other is None else empty(x.shape, dtype)
        rows = [contiguous(each).reshape(shape).view(np.uint8) for each in (x, y, total)]
        arguments = (
            rows[0], NO_ROWS if other is None else contiguous(other).reshape(shape).view(np.uint8),
            contiguous(scale).view(np.uint8),
            NO_NUMBERS if bias is None else contiguous(bias).view(np.uint8),
            float(np.float32(self._epsilon)), self._centred, *rows[1:], element, memory, grain,
            team,
        )  # fmt: skip
        return Launch(run, arguments, self._results(y, total))

    def _results(self, y: Any, total: Any) -> Any:
        if self._adds:
            return y, total
        return (y, *self._absent) if self._absent else y


def is_read(values: Iterable[ir.Value]) -> bool:
    """Return whether somebody reads one of some values."""
    return any(value.uses() or value.is_graph_output() for value in values)


# The number of outputs of normalizations; after the first one come mean and deviation.
OUTPUT_COUNTS = {"LayerNormalization": 3, "RMSNormalization": 1, "SimplifiedLayerNormalization": 2}


@specialize(*OUTPUT_COUNTS)
@specialize("SimplifiedLayerNormalization", domain="com.microsoft")
def specialize_norm(site: Site, plain: Call) -> Call | None:
    """Take the last axis, unless mean or deviation are outputs."""
    name, axis = site.node.op_type, site.attribute("axis", -1)
    if is_read(site.node.outputs[1:]) or site.attribute("stash_type", 1) != 1:
        return None
    centered, absent = name == "LayerNormalization", OUTPUT_COUNTS[name] - 1
    norm = Normalize(site.attribute("epsilon", 1e-5), centered, site.threads, absent)
    return Capturable(functools.partial(_normalized, norm, axis, plain))


@cacheable
def _normalized(norm: Normalize, axis: int, plain: Call, x: Any, scale: Any, *bias: Any) -> Any:
    last = axis in (-1, x.ndim - 1)
    made = norm(x, None, scale, *(bias or (None,))) if last else None
    return plain(x, scale, *bias) if made is None else made


@fusion(*RESIDUAL_NORMS, priority=RESIDUAL)
def fuse_skip(norm: ir.Node, scope: Scope) -> Fused | None:
    """Take a sum of what no constant is with its normalization."""
    add, site = find_sum(norm, scope), scope.site(norm)
    if add is None or any(value is not None and is_constant(value) for value in add.inputs):
        return None
    centered = norm.op_type == "LayerNormalization"
    norm_of = Normalize(site.attribute("epsilon", 1e-5), centered, scope.threads, adds=True)
    inputs = (*add.inputs, *norm.inputs[1:])
    step = scope.plain(norm)
    axis, plain = site.attribute("axis", -1), step.call
    call = SkipCall(norm_of, axis, centered, step.multiple, plain, scope.threads)
    APPLY.request()
    return Fused((add, norm), inputs, (norm.outputs[0], add.outputs[0]), Capturable(call))


@cacheable
@dataclass(frozen=True, eq=False)
class SkipCall:
    """The normalized sum of two arrays.

    Attributes:
        norm: Does both.
        axis: From which on sums are normalized.
        centered: Whether the normalization has a bias.
        multiple: Whether ``plain`` returns a tuple.
        plain: Normalizes a sum.
        threads: How many to use at most.
    """

    norm: Normalize
    axis: int
    centered: bool
    multiple: bool
    plain: Call
    threads: int

    def __call__(self, x: Any, other: Any, scale: Any, bias: Any = None) -> Any:
        """Return a launch, or the sum normalized and the sum."""
        rank = max(x.ndim, other.ndim)
        made = None
        if self.axis in (-1, rank - 1):
            alike = x.shape == other.shape
            made = self.norm(x, other, scale, bias) if alike else self._sum(x, other, scale, bias)
        if made is not None:
            return made
        both = x + other
        result = self.plain(both, *((scale, bias) if self.centered else (scale,)))
        return (result[0] if self.multiple else result), both

    def _sum(self, x: NDArray, other: NDArray, *norms: NDArray | None) -> Launch | None:
        """Return the launch behind that of a sum of arrays that broadcast, such as positions."""
        element = code_of(x.dtype)
        if element not in FLOAT_CODES or other.dtype != x.dtype:
            return None
        try:
            made = launch(ADD, element, (x, other), x.dtype, self.threads)
        except ValueError:  # numpy's sum says so, too
            made = None
        if made is None:
            return None
        both = ahead(made)
        normed: Launch | None = self.norm(both, None, *norms)
        return None if normed is None else normed._replace(result=(normed.result[0], both))
