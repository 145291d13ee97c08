"""Several nodes as one step on the CPU: a node as fusions see it, and their fallback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.by_name import cacheable
from tenonnx.graph.values import ValueInfo, value_info
from tenonnx.planning.fusion import Fused as Fused
from tenonnx.planning.fusion import Fusions
from tenonnx.planning.fusion import Scope as AnyScope
from tenonnx.provider import HOST, Step
from tenonnx_cpu.kernel_selection import Call, Site

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.planning.compound import Compound

# Chains from one byte to another: any other fusion would take a part of one.
LOOKED_UP = 10

# Several anchors as one kernel, which would each be taken with what follows it.
PATTERN = 20

# Between codes: a fusion of floats would take the node, and leave its bytes to be widened.
QUANTIZED = 30

# Products with chosen matrices: attention takes such a product with all that is made of it.
CHOSEN = 40

# Two anchors of which the second alone reads the first: each would be taken with what follows.
PAIRED = 45

# Products with a widened matrix: an anchor takes a bias and an activation besides.
WIDENED = 60

# Sums and their normalizations: an anchor adds as it stores, which spares a pass, not a part.
RESIDUAL = 70

# Regions of elementwise nodes: what nothing else took.
ELEMENTWISE = 80


class Scope(AnyScope):
    """The nodes that a fusion may join.

    Args:
        nodes: A segment's.
        free: Those of them that may be computed otherwise than one by one.
        escaping: Values that something outside the segment reads.
        threads: How many threads a kernel may use.
        plain: Returns a node's step on array kernels.
        packs: Whether a kernel may have a copy made of weights.
        narrows: Returns whether a node's kernel may round the factors of products to bfloat16.
    """

    def __init__(
        self,
        nodes: Sequence[ir.Node],
        free: Iterable[ir.Node],
        escaping: frozenset[ir.Value],
        threads: int,
        plain: Callable[[ir.Node], Step],
        packs: bool,
        narrows: Callable[[ir.Node], bool],
    ) -> None:
        super().__init__(nodes, free, escaping)
        self.threads = threads
        self.packs = packs
        self.narrows = narrows
        self.plain = plain

    def site(self, node: ir.Node) -> Site:
        """Return a node as specializations see it."""
        return Site(node, self.threads, self.narrows(node))

    def fused(
        self,
        nodes: Sequence[ir.Node],
        inputs: Iterable[ir.Value | None],
        make: Callable[[Call], Call],
        sources: Sequence[ir.Node] = (),
    ) -> Fused:
        """Return the fusion of nodes, and of those sources that nobody else reads then.

        Args:
            nodes: The nodes that are computed; the last one's output is the result.
            inputs: The inputs of the call.
            make: Returns the call, by one that runs sources and nodes one after the other.
            sources: What is before the nodes, and may stay for others.
        """
        output, inputs = nodes[-1].outputs[0], tuple(inputs)
        plain = self.fallback(tuple(dict.fromkeys((*sources, *nodes))), inputs, output)
        return Fused((*self.unread(sources, nodes), *nodes), inputs, (output,), make(plain))

    def fallback(
        self,
        nodes: Sequence[ir.Node],
        inputs: Iterable[ir.Value | None],
        output: ir.Value,
    ) -> Call:
        """Return a callable that runs the nodes one after the other on array kernels.

        It is called seldom: where a kernel is not compiled yet, or does not take what it gets.
        """
        given = tuple(map(value_info, inputs))
        return Fallback(tuple(map(self.plain, nodes)), given, value_info(output))


@cacheable
class Fallback:
    """Steps on array kernels, one after the other.

    Args:
        steps: In order.
        inputs: What it takes; ``None`` for what is passed over.
        output: What it returns.
    """

    def __init__(
        self, steps: tuple[Step, ...], inputs: tuple[ValueInfo | None, ...], output: ValueInfo
    ) -> None:
        self._made_of = steps, inputs, output
        self._given = [value is not None for value in inputs]

    @functools.cached_property
    def _compound(self) -> Compound:
        from tenonnx.planning.compound import Compound

        steps, inputs, output = self._made_of
        given = [(value, HOST) for value in inputs if value is not None]
        return Compound(steps, given, [output])

    def __call__(self, *arrays: Any) -> Any:
        """Return the result."""
        each = zip(arrays, self._given, strict=True)
        (found,) = self._compound(*(x for x, is_given in each if is_given))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it was before the first call."""
        return Fallback, self._made_of


FUSIONS: Fusions[Scope] = Fusions()

# Decorates a fusion: `@fusion("MatMul", "Gemm")`.
fusion = FUSIONS.add
