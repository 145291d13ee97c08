"""Single nodes on the host: for constants, and for the check of what other providers compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tenonnx.graph.values import ValueInfo
from tenonnx.provider import Provider, Segment, Step

if TYPE_CHECKING:
    import onnx_ir as ir


def step_on_host(node: ir.Node, hosts: Iterable[Provider]) -> Step | None:
    """Return the step of a node alone, by the first provider that runs it; ``None`` without one.

    Args:
        node: The node.
        hosts: Providers whose device is the host.
    """
    for provider in hosts:
        if provider.supports(node) is True:
            (step,) = provider.compile(Segment((node,), frozenset(node.outputs)))
            return step
    return None


def results(step: Step, values: Mapping[ValueInfo, Any]) -> dict[ValueInfo, Any]:
    """Return the outputs of a step, which reads the values."""
    made = step.call(*(None if v is None else values[v] for v in step.inputs))
    return dict(zip(step.outputs, tuple(made) if step.multiple else (made,), strict=False))
