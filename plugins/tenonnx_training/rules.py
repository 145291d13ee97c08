"""Vector-Jacobian products: from the gradient of an operator's output to those of its inputs.

A rule takes ``g``, the gradient of the output ``y``, then ``y``, the inputs and the attributes; it
returns a gradient per input, ``None`` where there is none. Rules use operators that have rules
themselves, so gradients of gradients need no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx_training.tensor import OPSET, Tensor

Gradients: TypeAlias = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Rule:
    """The gradient rule of an operator.

    Attributes:
        call: ``call(g, y, *inputs, **attributes)``.
        broadcasts: Whether its results have the inputs' broadcast shape and must be summed.
        since: The first version of the operator that the rule supports.
    """

    call: Callable[..., Gradients]
    broadcasts: bool = False
    since: int = 1


def power(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Gradients:
    # At a = 0 the logarithm is infinite, and y, which is 0, does not depend on b.
    log = y.apply("Equal", y.number(0)).apply("Where", a.number(1), a).apply("Log")
    return g * b.apply("CastLike", a) * a ** (b - b.number(1)), g * y * log


def where(g: Tensor, y: Tensor, condition: Tensor, *_: Tensor) -> Gradients:
    return None, condition.apply("Where", g, y.number(0)), condition.apply("Where", y.number(0), g)


def matmul(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Gradients:
    row, column = "i" * (a.rank != 1), "k" * (b.rank != 1)
    first = f"...{row}j" if row else "j"
    second = f"...j{column}" if column else "j"
    return einsum(g, y, a, b, equation=f"{first},{second}->...{row}{column}")


def einsum(g: Tensor, y: Tensor, *operands: Tensor, equation: str) -> Gradients:
    """Each operand's gradient is the product of the others with ``g``, by the same indices."""
    left, _, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    gradients = []
    for place, term in enumerate(terms):
        others = terms[:place] + terms[place + 1 :]
        letters = term.replace(".", "")
        if len(set(letters)) < len(letters) or not set(letters) <= set(out.join([*others, ""])):
            raise ValueError(f"the equation {equation!r} repeats an index or sums over one alone")
        target = term if "..." in term else f"...{term}"
        rest = (*operands[:place], *operands[place + 1 :])
        gradients.append(g.apply("Einsum", *rest, equation=f"{','.join([out, *others])}->{target}"))
    return tuple(gradients)


def gemm(
    g: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Gradients:
    def product(p: Tensor, q: Tensor, first: int, second: int) -> Tensor:
        return p.apply("Gemm", q, alpha=alpha, transA=first, transB=second)

    return (
        product(b, g, transB, 1) if transA else product(g, b, 0, 1 - transB),
        product(g, a, 1, transA) if transB else product(a, g, 1 - transA, 0),
        None if c is None else (g * y.number(beta)).sum_to(c),
    )


def reduced(op: str) -> Callable[..., Gradients]:
    """Return the rule of ReduceSum or ReduceMean."""

    def rule(g: Tensor, y: Tensor, x: Tensor, *axes: Tensor, **attributes: Any) -> Gradients:
        # Axes are an attribute in older versions.
        version = 11 if "axes" in attributes else OPSET
        kept = x.apply(op, *axes, version=version, **{**attributes, "keepdims": 1})
        spread = g.reshape(kept.shape).apply("Expand", x.shape)
        if op == "ReduceSum":
            return (spread,)
        count = x.apply("Size") / y.apply("Size")
        return (spread / count.apply("CastLike", g),)

    return rule


def transpose(g: Tensor, y: Tensor, x: Tensor, *, perm: tuple[int, ...] | None = None) -> Gradients:
    back = {} if perm is None else {"perm": np.argsort(perm).tolist()}
    return (g.apply("Transpose", **back),)


def softmax(g: Tensor, y: Tensor, x: Tensor, *, axis: int = -1) -> Gradients:
    return (y * (g - (g * y).sum(axis)),)


def reshape(g: Tensor, y: Tensor, x: Tensor, *_: Tensor, **__: Any) -> Gradients:
    return (g.reshape(x.shape),)


GRADIENT_RULES: dict[str, Rule] = {
    "Add": Rule(lambda g, y, a, b: (g, g), broadcasts=True, since=7),
    "Sub": Rule(lambda g, y, a, b: (g, -g), broadcasts=True, since=7),
    "Mul": Rule(lambda g, y, a, b: (g * b, g * a), broadcasts=True, since=7),
    "Div": Rule(lambda g, y, a, b: (g / b, -g * y / b), broadcasts=True, since=7),
    "Pow": Rule(power, broadcasts=True, since=7),
    "Where": Rule(where, broadcasts=True),
    "MatMul": Rule(matmul, broadcasts=True),
    "Einsum": Rule(einsum, broadcasts=True),
    "Expand": Rule(lambda g, y, x, shape: (g,), broadcasts=True),
    "Gemm": Rule(gemm, since=7),
    "ReduceSum": Rule(reduced("ReduceSum")),
    "ReduceMean": Rule(reduced("ReduceMean")),
    "Softmax": Rule(softmax, since=13),
    "Transpose": Rule(transpose),
    "Reshape": Rule(reshape, since=5),
    "Squeeze": Rule(reshape),
    "Unsqueeze": Rule(reshape),
    "Flatten": Rule(reshape),
    "Identity": Rule(lambda g, y, x: (g,)),
    "CastLike": Rule(lambda g, y, x, like: (g.apply("CastLike", x),)),
    "Neg": Rule(lambda g, y, x: (-g,)),
    "Exp": Rule(lambda g, y, x: (g * y,)),
    "Log": Rule(lambda g, y, x: (g / x,)),
    "Sqrt": Rule(lambda g, y, x: (g / (y + y),)),
    "Relu": Rule(lambda g, y, x: (g * y.apply("Sign"),)),
    "Sigmoid": Rule(lambda g, y, x: (g * (y - y * y),)),
    "Tanh": Rule(lambda g, y, x: (g - g * y * y,)),
}

# Piecewise constant operators: no gradient passes through them.
FLAT = frozenset({"ConstantOfShape", "Equal", "NonZero", "Not", "Shape", "Sign", "Size"})
