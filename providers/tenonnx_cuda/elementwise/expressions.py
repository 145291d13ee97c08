"""Operators that mean the same to every element, as expressions in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tenonnx_cuda.chosen import attribute

if TYPE_CHECKING:
    import onnx_ir as ir

MICROSOFT: Final = "com.microsoft"

SINCE: Final = 13
"""The opset version from which on ONNX's broadcast, and take bfloat16."""

SIMPLE: Final = {
    "Abs": "fabsf({0})",
    "Add": "{0} + {1}",
    "Cos": "cosf({0})",
    "Div": "{0} / {1}",
    "Erf": "erff({0})",
    "Exp": "expf({0})",
    "Log": "logf({0})",
    "Mul": "{0} * {1}",
    "Neg": "-{0}",
    "Reciprocal": "1.0f / {0}",
    "Relu": "{0} < 0.0f ? 0.0f : {0}",
    "Sigmoid": "sigmoid({0})",
    "Sin": "sinf({0})",
    "Sqrt": "sqrtf({0})",
    "Sub": "{0} - {1}",
    "Tanh": "tanhf({0})",
}
"""Those that the array library computes at once, too."""


def number(value: float) -> str:
    """Returns a float32 as C writes it."""
    return f"{float(value)!r}f"


def _gelu(node: ir.Node) -> str:
    return "gelu_by_tanh({0})" if attribute(node, "approximate", "none") == "tanh" else "gelu({0})"


def _swish(node: ir.Node) -> str:
    default = 1.0 if node.op_type == "Swish" else 1.702
    return f"{{0}} * sigmoid({number(attribute(node, 'alpha', default))} * {{0}})"


def _fast_gelu(node: ir.Node) -> str:
    has_bias = len(node.inputs) > 1 and node.inputs[1] is not None
    return "gelu_by_tanh({0} + {1})" if has_bias else "gelu_by_tanh({0})"


def _hard_sigmoid(node: ir.Node) -> str:
    alpha, beta = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
    return f"clamped({number(alpha)} * {{0}} + {number(beta)}, 0.0f, 1.0f)"


COMPOUND: Final[dict[tuple[str, str], Callable[[ir.Node], str]]] = {
    ("", "Gelu"): _gelu,
    ("", "HardSigmoid"): _hard_sigmoid,
    ("", "HardSwish"): lambda _: "{0} * clamped({0} / 6.0f + 0.5f, 0.0f, 1.0f)",
    ("", "LeakyRelu"): lambda node: f"leaky({{0}}, {number(attribute(node, 'alpha', 0.01))})",
    ("", "Swish"): _swish,
    (MICROSOFT, "BiasGelu"): lambda _: "gelu({0} + {1})",
    (MICROSOFT, "FastGelu"): _fast_gelu,
    (MICROSOFT, "Gelu"): lambda _: "gelu({0})",
    (MICROSOFT, "QuickGelu"): _swish,
}
"""Those that the array library computes in several steps: a kernel pays for one alone."""


def expression(node: ir.Node) -> str | None:
    """Returns what a node computes of ``{0}`` and ``{1}``; ``None`` if it is none of these."""
    if node.domain == "" and (node.version or 1) < SINCE:
        return None
    if (compound := COMPOUND.get((node.domain, node.op_type))) is not None:
        return compound(node)
    return SIMPLE.get(node.op_type) if node.domain == "" else None


def pays_alone(node: ir.Node) -> bool:
    """Says whether a kernel for one node alone is faster than the array library."""
    return (node.domain, node.op_type) in COMPOUND
