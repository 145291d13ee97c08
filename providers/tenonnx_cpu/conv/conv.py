"""Conv on the CPU provider's own kernels, with what follows it: norm, addition, activation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import channels_first, channels_last, is_last
from tenonnx_cpu.conv.layout import DEPTH
from tenonnx_cpu.conv.layout_assignment import better_last
from tenonnx_cpu.conv.select import WINOGRAD, Choice, Form, Plan, request
from tenonnx_cpu.conv.tail import ACTIVATED, PER_CHANNEL, RESIDUAL, Tail, find_tail, per_channel
from tenonnx_cpu.fuse import Fused, Scope, fusion
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.product import F32, fits

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

NOTHING = np.empty(0, np.float32)
UNITS = np.repeat(np.array([1, 0], np.float32), 64)
"""The placeholder of an unused factor, summand or residual."""


def flat(array: NDArray) -> NDArray:
    """Returns float32 one after the other and aligned, which takes a copy if they are not."""
    if array.flags.carray or fits(array):
        return array.reshape(-1)
    return np.require(array, requirements=["C", "A"]).reshape(-1)


def _is_free(residual: NDArray | None) -> bool:
    """Says whether a result may have its channels last without a copy of what is added to it."""
    if residual is None or residual.ndim < 2:
        return True
    return channels_last(residual).flags.c_contiguous


@fusion("Conv", takes=(PER_CHANNEL, RESIDUAL, ACTIVATED))
def fuse_conv(node: ir.Node, scope: Scope) -> Fused | None:
    """A convolution of float32 and what is done to its result."""
    site = scope.site(node)
    weight = site.constant(1)
    if weight is not None and weight.dtype != F32:
        return None
    tail = find_tail(node, scope)
    request(weight)
    inputs = (*node.inputs[:2], node.inputs[2] if len(node.inputs) > 2 else None, tail.residual)
    plain = scope.fallback(tail.nodes, inputs, tail.output)
    handle = site.weight(1) if scope.packs else None
    last = better_last(tail.output, scope)
    call = ConvCall(Attributes.of(site), tail, scope.threads, plain, handle, last)
    return Fused(tail.nodes, inputs, (tail.output,), Capturable(call.launch))


Attempt: TypeAlias = Callable[[NDArray, "NDArray | None"], "Launch | None"]
"""Takes images and what is added to the result; returns ``None`` if its kernel does not."""

Bound: TypeAlias = tuple[NDArray, "NDArray | None", tuple[Attempt, ...]]
"""Weights, bias, and what to try with them."""


class ConvCall:
    """Calls the kernel that fits, or the array kernels.

    Args:
        attributes: The convolution's.
        tail: The operations on its result.
        threads: How many to use at most.
        plain: Takes the same arguments and does the same.
        weight: What the kernels are in the registry, if they are and may be transformed.
        last: Whether results had better have their channels last.
        chain: About how many products to add one after the other.
    """

    def __init__(
        self,
        attributes: Attributes,
        tail: Tail,
        threads: int,
        plain: Any,
        weight: Weight | None = None,
        last: bool = False,
        chain: int = DEPTH,
    ) -> None:
        self._choice = Choice(attributes, threads, weight, last, chain)
        self._tail = tail
        self._plain = plain
        self._weight = weight
        self._plans: dict[Any, tuple[Plan, ...]] = {}
        self._bound: dict[Any, Bound] = {}

    def __call__(
        self, x: NDArray, w: NDArray, b: NDArray | None = None, residual: NDArray | None = None
    ) -> Any:
        """Returns what the nodes do, all in one."""
        return done(self.launch(x, w, b, residual), (x, w, b, residual))

    def launch(
        self, x: NDArray, w: NDArray, b: NDArray | None = None, residual: NDArray | None = None
    ) -> Any:
        """Returns a launch that does what the nodes do, or what it returns."""
        form = x.shape, is_last(x), _is_free(residual)
        bound = self._bound.get(form)
        if bound is None or bound[0] is not w or bound[1] is not b:
            bound = self._bind(form, w, b)
        return self._try(bound[2], x, w, b, residual)

    def _try(self, calls: Sequence[Attempt], x: NDArray, *others: Any) -> Any:
        """Returns a launch of the first kernel that takes the arrays, or ``plain``'s result."""
        for number, call in enumerate(calls):
            made = call(x, others[-1])
            if made is not None:
                return (
                    made
                    if made.refusal is None
                    else made._replace(otherwise=functools.partial(self._try, calls[number + 1 :]))
                )
        return self._plain(x, *others)

    def _bind(self, form: Form, w: NDArray, b: NDArray | None) -> Bound:
        """Returns what to try for images of a form, in order."""
        key = (form, w.shape)
        if len(self._plans) > 64:
            self._plans.clear()
            self._bound.clear()
        if key not in self._plans:
            self._plans[key] = tuple(self._choice.plans(*key))
        summand = self._tail.summand(w.shape[0], b)
        bound: Bound = w, b, ()
        if summand is not None and w.dtype == F32:
            calls = (self._caller(plan, len(form[0]), w, summand) for plan in self._plans[key])
            bound = w, b, tuple(calls)
        if self._weight is not None:
            self._bound[form] = bound
        return bound

    def _caller(self, plan: Plan, rank: int, w: NDArray, shift: NDArray) -> Attempt:
        """Returns what calls a kernel with an image and a residual; its ``None`` is a refusal."""
        kernel, cut, tail = plan.kernel, plan.cut, self._tail
        weights, checked = flat(w if plan.weights is None else plan.weights), kernel is WINOGRAD
        shape = cut.output if rank > 3 else (*cut.output[:2], cut.output[3])
        made = (shape[0], *shape[2:], shape[1]) if plan.to_last else shape
        scale = per_channel(w.shape[0])[0] if tail.scale is None else tail.scale
        count, threads = cut.floats * cut.threads, cut.threads
        after = scale, shift
        kind = *tail.activation, UNITS
        places = cut.numbers, cut.offsets, cut.panel, cut.planes

        def call(x: NDArray, residual: NDArray | None) -> Launch | None:
            run = kernel.run
            if run is None or x.dtype != F32:
                return None
            added = NOTHING
            if residual is not None:
                if residual.shape != shape or residual.dtype != F32:
                    return None
                added = flat(channels_last(residual) if plan.to_last else residual)
            y, memory = empty(made), floats(count)
            arguments = (
                flat(channels_last(x) if plan.from_last else x),
                weights,
                y.reshape(-1),
                *after,
                added,
                *kind,
                *places,
                memory,
                threads,
            )
            # One number that is not finite makes all of its tile so.
            result = channels_first(y) if plan.to_last else y
            return Launch(run, arguments, result, refusal=memory if checked else None)

        return call
