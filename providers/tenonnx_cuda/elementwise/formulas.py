"""Formulas in C of operators that mean the same to every element.

``{0}`` and ``{1}`` are the operands, other names in braces the operator's attributes.
"""

from __future__ import annotations

from typing import Final

from tenonnx.graph.traits import ACTIVATIONS

# Those that the array library computes at once, too.
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

# Those that the array library computes in several steps: a kernel pays for one alone.
COMPOUND: Final = {
    "Gelu": "gelu({0})",
    "HardSigmoid": "clamped({alpha} * {0} + {beta}, 0.0f, 1.0f)",
    "HardSwish": "{0} * clamped({0} / 6.0f + 0.5f, 0.0f, 1.0f)",
    "LeakyRelu": "leaky({0}, {alpha})",
    "Swish": "{0} * sigmoid({alpha} * {0})",
}

# Those of com.microsoft, likewise.
MICROSOFTS: Final = {
    "BiasGelu": "gelu({0} + {1})",
    "FastGelu": "gelu_by_tanh({0})",
    "Gelu": "gelu({0})",
    "QuickGelu": "{0} * sigmoid({alpha} * {0})",
}


# Activations that kernels apply to their results; none, too.
ENDINGS: Final = {
    **{name: text for name, text in (SIMPLE | COMPOUND).items() if name in ACTIVATIONS},
    "": "{0}",
    "Clip": "clamped({0}, {alpha}, {beta})",
    "GeluTanh": MICROSOFTS["FastGelu"],
}


def endings() -> str:
    """Return a function in C for each of ``ENDINGS``."""
    head = "__device__ inline float {}(float x, float alpha, float beta) {{ return {}; }}\n"
    return "".join(
        head.format(function_of(name), text.format("x", alpha="alpha", beta="beta"))
        for name, text in ENDINGS.items()
    )


def function_of(activation: str) -> str:
    """Return what an activation's function is called, which is a kernel's macro ``ACTIVATED``."""
    return f"activated_by_{activation or 'nothing'}"
