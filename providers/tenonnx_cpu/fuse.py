"""Several nodes as one step on the CPU: what fusions see of a node, and what they fall back on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.planning.fusion import Fused as Fused
from tenonnx.planning.fusion import Fusions
from tenonnx.planning.fusion import Scope as AnyScope
from tenonnx.planning.lower import is_constant
from tenonnx.provider import Step
from tenonnx_cpu.jit.runtime import ASKING
from tenonnx_cpu.specialise import Call, Site, on_host

if TYPE_CHECKING:
    import onnx_ir as ir

LOOKED_UP = 10
"""Chains from one byte to another: any other fusion would take a part of one."""

PATTERN = 20
"""Several anchors as one kernel, which would each be taken with what follows it."""

QUANTIZED = 30
"""Between codes: a fusion of floats would take the node, and leave its bytes to be widened."""

CHOSEN = 40
"""Products with chosen matrices: attention takes such a product with all that is made of it."""

WIDENED = 60
"""Products with a widened matrix: an anchor takes a bias and an activation besides."""

RESIDUAL = 70
"""Sums and their normalisations: an anchor adds as it stores, which spares a pass, not a part."""

ELEMENTWISE = 80
"""Regions of elementwise nodes: what nothing else took."""


class Scope(AnyScope):
    """What a fusion may take nodes from.

    Args:
        nodes: A segment's.
        free: Those of them that may be computed otherwise than one by one.
        escaping: Values that something outside the segment reads.
        threads: How many threads a kernel may use.
        plain: Returns a node's step on array kernels.
        packs: Whether a kernel may have a copy made of weights.
    """

    def __init__(
        self,
        nodes: Sequence[ir.Node],
        free: Iterable[ir.Node],
        escaping: frozenset[ir.Value],
        threads: int,
        plain: Callable[[ir.Node], Step],
        packs: bool = True,
    ) -> None:
        super().__init__(nodes, free, escaping)
        self.threads = threads
        self.packs = packs
        self.plain = plain
        self._demand = ASKING.get()

    def enter(self, node: ir.Node) -> None:
        """Notes the node for which kernels are asked from now on."""
        self._demand.node = node

    def site(self, node: ir.Node) -> Site:
        """Returns a node as specialisations see it."""
        return Site(node, self.threads)

    def fallback(
        self,
        nodes: Sequence[ir.Node],
        inputs: Iterable[ir.Value | None],
        output: ir.Value,
    ) -> Call:
        """Returns a callable that runs the nodes one after the other on array kernels.

        It is made when it is first called, which is seldom: where a kernel is not compiled yet, or
        does not take what it gets.
        """
        plain, taken, made = self.plain, tuple(inputs), list[Call]()

        def call(*arrays: Any) -> Any:
            if not made:
                made.append(straight_line([plain(node) for node in nodes], taken, output))
            return made[0](*arrays)

        return call


def straight_line(
    steps: Sequence[Step],
    inputs: Iterable[ir.Value | None],
    output: ir.Value | Sequence[ir.Value],
) -> Call:
    """Returns steps as a Python function, a line for each, as a plan has them.

    Args:
        steps: What to run, in order.
        inputs: What the function takes. A constant need not be among them.
        output: What it returns; values come as a tuple.
    """
    namespace: dict[str, Any] = {}
    names: dict[ir.Value | None, str] = {None: "None"}
    taken = tuple(inputs)
    parameters = [f"p{number}" for number, _ in enumerate(taken)]
    names |= {v: name for v, name in zip(taken, parameters, strict=True) if v is not None}
    lines = [f"def call({', '.join(parameters)}):"]
    for number, step in enumerate(steps):
        for value in step.inputs:
            if value not in names and value is not None and is_constant(value):
                names[value] = f"c{len(namespace)}"
                namespace[names[value]] = on_host(value.const_value)
        namespace[f"k{number}"] = step.call
        results = [f"v{number}_{place}" for place, _ in enumerate(step.outputs)]
        arguments = ", ".join(names[value] for value in step.inputs)
        target = f"{', '.join(results)}, *_" if step.multiple else results[0]
        lines.append(f"    {target} = k{number}({arguments})")
        names |= zip(step.outputs, results, strict=True)
    if isinstance(output, Sequence):
        lines.append(f"    return {''.join(f'{names[value]}, ' for value in output)}")
    else:
        lines.append(f"    return {names[output]}")
    exec("\n".join(lines), namespace)
    return namespace["call"]  # type: ignore[no-any-return]  # what exec has just defined


FUSIONS: Fusions[Scope] = Fusions()

fusion = FUSIONS.add
"""Decorates a fusion: ``@fusion("MatMul", "Gemm")``."""
