"""Conv on the CPU provider's own kernels, with what follows it: norm, addition, activation."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, is_last
from tenonnx_cpu.conv.epilogue import (
    ACTIVATED,
    PER_CHANNEL,
    TAIL_RESIDUAL,
    Tail,
    find_tail,
    per_channel,
)
from tenonnx_cpu.conv.layout import CHAIN_DEPTH
from tenonnx_cpu.conv.layout_assignment import better_last
from tenonnx_cpu.conv.select import WINOGRAD, Choice, ConvPlan, request
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.product import F32, fits

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

NO_RESIDUAL = np.empty(0, np.float32)
# The placeholder of an unused factor, summand or residual.
UNITS = frozen(np.repeat(np.array([1, 0], np.float32), 64))


def flat(array: NDArray) -> NDArray:
    """Return float32 one after the other and aligned, which takes a copy if they are not."""
    if array.flags.carray or fits(array):
        return array.reshape(-1)
    return contiguous(array).reshape(-1)


def spread_over(array: NDArray, shape: tuple[int, ...]) -> NDArray | None:
    """Return an array as one of a shape, such as a number for each channel; ``None`` if it is not.

    It is a view, of which ``flat`` makes a copy.
    """
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        return None


def _is_free(residual: NDArray | None) -> bool:
    """Return whether a result may have its channels last without a copy of what is added to it."""
    if residual is None or residual.ndim < 2:
        return True
    return channels_last(residual).flags.c_contiguous


@fusion("Conv", takes=(PER_CHANNEL, TAIL_RESIDUAL, ACTIVATED))
def fuse_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of float32 and what is done to its result."""
    site = scope.site(node)
    weight = site.constant(1)
    if weight is not None and weight.dtype != F32:
        return None
    nodes, output, residual, tail = find_tail(node, scope)
    request(weight, site.narrows)
    inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else None, residual)
    plain = scope.fallback(nodes, inputs, output)
    handle = site.weight(1) if scope.packs else None
    last = better_last(output, scope)
    call = ConvCall(
        Attributes.of(site), tail, scope.threads, plain, handle, last,
        narrows=site.narrows, adds=residual is not None,
    )  # fmt: skip
    return Fused(nodes, inputs, (output,), Capturable(call.launch))


@cacheable
class ConvCall:
    """A convolution on the kernel that fits, or on the array kernels.

    Args:
        attributes: The convolution's.
        tail: The operations on its result.
        threads: How many to use at most.
        plain: Takes the same arguments and does the same.
        weight: What the kernels are in the registry, if they are and may be transformed.
        last: Whether results had better have their channels last.
        chain: About how many products to add one after the other.
        narrows: Whether factors may be rounded to bfloat16.
        adds: Whether there are residuals.
    """

    def __init__(
        self,
        attributes: Attributes,
        tail: Tail,
        threads: int,
        plain: Any,
        weight: Weight | None = None,
        last: bool = False,
        chain: int = CHAIN_DEPTH,
        narrows: bool = False,
        adds: bool = False,
    ) -> None:
        self._choice = Choice(attributes, threads, weight, last, chain, narrows, adds)
        self._tail = tail
        self._plain = plain

    def __call__(
        self, x: NDArray, w: NDArray, b: NDArray | None = None, residual: NDArray | None = None
    ) -> Any:
        """Return what the nodes do, all in one."""
        return done(self.launch(x, w, b, residual), (x, w, b, residual))

    def launch(
        self, x: NDArray, w: NDArray, b: NDArray | None = None, residual: NDArray | None = None
    ) -> Any:
        """Return a launch that does what the nodes do, or what it returns."""
        return self._try(0, x, w, b, residual)

    def _try(
        self,
        first: int,
        x: NDArray,
        w: NDArray,
        b: NDArray | None = None,
        residual: NDArray | None = None,
    ) -> Any:
        """Return a launch of a kernel that takes the arrays, or ``plain``'s result.

        Kernels before the one of a number are left out.
        """
        summand = self._tail.summand(w.shape[0], b)
        if summand is not None and x.dtype == w.dtype == F32:
            plans = self._choice.plans(x.shape, is_last(x), _is_free(residual), w.shape)
            for number, plan in enumerate(itertools.islice(plans, first, None), first + 1):
                if (made := self._launch(plan, x, w, summand, residual)) is None:
                    continue
                if (
                    plan.kernel is WINOGRAD
                ):  # one number that is not finite makes all of its tile so
                    refused = functools.partial(self._try, number)
                    return made._replace(refusal=made.arguments[-2], otherwise=refused)
                return made
        return self._plain(x, w, b, residual)

    def _launch(
        self, plan: ConvPlan, x: NDArray, w: NDArray, shift: NDArray, residual: NDArray | None
    ) -> Launch | None:
        """Return a launch for images and a residual; ``None`` if the kernel does not take them."""
        run, cut, tail = plan.kernel.run, plan.cut, self._tail
        if run is None:
            return None
        shape = cut.output if x.ndim > 3 else (*cut.output[:2], cut.output[3])
        added = NO_RESIDUAL
        if residual is not None:
            if residual.dtype != F32:
                return None
            if residual.shape != shape:
                if (spread := spread_over(residual, shape)) is None:
                    return None
                residual = spread
            added = flat(channels_last(residual) if plan.to_last else residual)
        y = empty((shape[0], *shape[2:], shape[1]) if plan.to_last else shape)
        arguments = (
            flat(channels_last(x) if plan.from_last else x),
            flat(w if plan.weights is None else plan.weights),
            y.reshape(-1),
            per_channel(w.shape[0])[0] if tail.scale is None else tail.scale,
            shift,
            added,
            *tail.activation,
            UNITS,
            cut.numbers,
            cut.offsets,
            cut.panel,
            cut.planes,
            worker_floats(cut.floats, cut.threads),
            cut.threads,
        )
        return Launch(run, arguments, channels_first(y) if plan.to_last else y)
