"""Running one node alone on the host, by the first provider that supports it.

Transforms fold constants with it, and ``checking`` compares the results of other providers with
its results. Nothing is fused: a segment of one node is what an operator means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tenonnx.graph.values import ValueInfo
from tenonnx.provider import Provider, Segment, Step

if TYPE_CHECKING:
    import onnx_ir as ir


def step_on_host(node: ir.Node, hosts: Iterable[Provider]) -> Step | None:
    """Return the step of one node; ``None`` if no provider supports it.

    Args:
        node: The node.
        hosts: Providers whose device is the host, in the order in which they are asked.
    """
    for provider in hosts:
        if provider.supports(node) is True:
            (step,) = provider.compile(Segment((node,), frozenset(node.outputs)))
            return step
    return None


def run_step(step: Step, values: Mapping[ValueInfo, Any]) -> dict[ValueInfo, Any]:
    """Run a step on values; return its outputs by value."""
    made = step.call(*(None if v is None else values[v] for v in step.inputs))
    return dict(zip(step.outputs, tuple(made) if step.multiple else (made,), strict=False))
