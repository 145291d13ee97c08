"""Conv on the CPU provider's own kernels, with what follows it: norm, addition, activation."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

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
from tenonnx_cpu.conv.select import WINOGRAD, Choice, ConvPlan, Form, request
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


@dataclass(frozen=True, eq=False)
class Attempt:
    """Tries a kernel with weights.

    Attributes:
        plan: The kernel, and how its work is cut.
        shape: The result's.
        weights: As the kernel takes them, flat.
        rest: The kernel's arguments around the residual: factors and summands of channels; what
            is done to the sums, and where things lie.
    """

    plan: ConvPlan
    shape: tuple[int, ...]
    weights: NDArray
    rest: tuple[tuple[Any, ...], tuple[Any, ...]]

    def __call__(self, x: NDArray, residual: NDArray | None) -> Launch | None:
        """Return a launch for images and a residual; ``None`` if the kernel does not take them."""
        plan, shape, (before, after) = self.plan, self.shape, self.rest
        run = plan.kernel.run
        if run is None or x.dtype != F32:
            return None
        added = NO_RESIDUAL
        if residual is not None:
            if residual.shape != shape or residual.dtype != F32:
                return None
            added = flat(channels_last(residual) if plan.to_last else residual)
        threads = plan.cut.threads
        y = empty((shape[0], *shape[2:], shape[1]) if plan.to_last else shape)
        memory = worker_floats(plan.cut.floats, threads)
        image = flat(channels_last(x) if plan.from_last else x)
        arguments = (
            image, self.weights, y.reshape(-1), *before, added, *after, memory, threads
        )  # fmt: skip
        result = channels_first(y) if plan.to_last else y
        # One number that is not finite makes all of its tile so.
        refusal = memory if plan.kernel is WINOGRAD else None
        return Launch(run, arguments, result, refusal=refusal)


# Weights, bias, and the attempt with them; `None` behind the last one.
Bound: TypeAlias = tuple[NDArray, "NDArray | None", "Attempt | None"]

# Attempts that a call keeps; each has some KiB of numbers.
MOST_FORMS = 128


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
        self._weight = weight
        self._plans: dict[Any, ConvPlan | None] = {}
        self._bound: dict[Any, Bound] = {}

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
        number: int,
        x: NDArray,
        w: NDArray,
        b: NDArray | None = None,
        residual: NDArray | None = None,
    ) -> Any:
        """Return a launch of the first kernel that takes the arrays, or ``plain``'s result.

        Attempts before the one of a number are left out.
        """
        form = x.shape, is_last(x), _is_free(residual)
        while (call := self._attempt(form, number, w, b)) is not None:
            number += 1
            if (made := call(x, residual)) is not None:
                if made.refusal is None:
                    return made
                return made._replace(otherwise=functools.partial(self._try, number))
        return self._plain(x, w, b, residual)

    def _attempt(self, form: Form, number: int, w: NDArray, b: NDArray | None) -> Attempt | None:
        """Return an attempt for images of a form; ``None`` if there are less of them."""
        key = form, number
        bound = self._bound.get(key)
        if bound is not None and bound[0] is w and bound[1] is b:
            return bound[2]
        plan = self._plan(form, number, w.shape)
        summand = self._tail.summand(w.shape[0], b)
        made = None
        if plan is not None and summand is not None and w.dtype == F32:
            made = self._caller(plan, len(form[0]), w, summand)
        if self._weight is not None:
            self._bound[key] = w, b, made
        return made

    def _plan(self, form: Form, number: int, w: tuple[int, ...]) -> ConvPlan | None:
        """Return a plan; those behind it, which few images need, are not made."""
        key = form, number, w
        if len(self._plans) > MOST_FORMS:
            self._plans.clear()
            self._bound.clear()
        if key not in self._plans:
            plans = self._choice.plans(form, w)
            self._plans[key] = next(itertools.islice(plans, number, None), None)
        return self._plans[key]

    def _caller(self, plan: ConvPlan, rank: int, w: NDArray, shift: NDArray) -> Attempt:
        """Return what tries a kernel with weights and a summand for each channel."""
        cut, tail = plan.cut, self._tail
        shape = cut.output if rank > 3 else (*cut.output[:2], cut.output[3])
        scale = per_channel(w.shape[0])[0] if tail.scale is None else tail.scale
        after = (*tail.activation, UNITS, cut.numbers, cut.offsets, cut.panel, cut.planes)
        weights = flat(w if plan.weights is None else plan.weights)
        return Attempt(plan, shape, weights, ((scale, shift), after))
