"""Operators that mean the same to every element, as expressions in C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenonnx.graph.traits import ACTIVATIONS
from tenonnx_cuda.elementwise.formulas import COMPOUND, MICROSOFTS, SIMPLE
from tenonnx_cuda.kernel_selection import attribute

if TYPE_CHECKING:
    import onnx_ir as ir

MICROSOFT_DOMAIN: Final = "com.microsoft"

# The opset version from which on ONNX's broadcast, and take bfloat16.
BROADCASTING_SINCE: Final = 13


def number(value: float) -> str:
    """Return a float32 as C writes it."""
    return f"{float(value)!r}f"


def expression(node: ir.Node) -> str | None:
    """Return what a node computes of ``{0}`` and ``{1}``; ``None`` if it is none of these."""
    name = node.op_type
    if node.domain == MICROSOFT_DOMAIN:
        template = MICROSOFTS.get(name)
        if name == "FastGelu" and len(node.inputs) > 1 and node.inputs[1] is not None:
            template = "gelu_by_tanh({0} + {1})"
    elif node.domain or (node.version or 1) < BROADCASTING_SINCE:
        return None
    elif name == "Gelu" and attribute(node, "approximate", "none") == "tanh":
        template = MICROSOFTS["FastGelu"]
    else:
        template = COMPOUND.get(name, SIMPLE.get(name))
    defaults = {"alpha": 1.702} if name == "QuickGelu" else ACTIVATIONS.get(name, {})
    given = {key: number(attribute(node, key, default)) for key, default in defaults.items()}
    return None if template is None else template.format("{0}", "{1}", **given)


def pays_alone(node: ir.Node) -> bool:
    """Return whether a kernel for one node alone is faster than the array library."""
    return node.op_type in (MICROSOFTS if node.domain else COMPOUND)
