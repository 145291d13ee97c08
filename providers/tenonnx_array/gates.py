"""The activation functions that RNN, GRU and LSTM name in an attribute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tenonnx.graph.traits import ACTIVATIONS
from tenonnx.operators import Array, Namespace
from tenonnx_array import nonlinear

# An activation, of an array with a leading axis of directions.
Function: TypeAlias = Callable[[Array], Array]


def affine(_: Namespace, x: Array, *, alpha: float, beta: float) -> Array:
    """Return alpha x + beta."""
    return alpha * x + beta


def scaled_tanh(xp: Namespace, x: Array, *, alpha: float, beta: float) -> Array:
    """Return alpha tanh(beta x)."""
    return alpha * xp.tanh(beta * x)


def thresholded_relu(xp: Namespace, x: Array, *, alpha: float) -> Array:
    """Return x from alpha on, else 0; the operator of that name starts above alpha."""
    return xp.where(x >= alpha, x, 0)


# Operators among the activations that the specification of the layers names.
OPERATORS = ("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")

# Functions by lower-case name, and the defaults of what they take of alpha and beta.
GATE_ACTIVATIONS: Mapping[str, tuple[Callable[..., Array], Mapping[str, float]]] = {
    **{name.lower(): (nonlinear.ACTIVATIONS[name], ACTIVATIONS[name]) for name in OPERATORS},
    "affine": (affine, {"alpha": 1.0, "beta": 0.0}),
    "scaledtanh": (scaled_tanh, {"alpha": 1.0, "beta": 1.0}),
    "thresholdedrelu": (thresholded_relu, {"alpha": 1.0}),
}


def gate_functions(
    xp: Namespace,
    names: Sequence[str],
    each: int,
    directions: int,
    alphas: Sequence[float],
    betas: Sequence[float],
    clip: float | None,
) -> list[Function]:
    """Return a step's activations.

    Args:
        xp: The array namespace.
        names: The activations of the first direction, then the second's; more are ignored.
        each: How many one direction takes.
        directions: How many directions there are.
        alphas: First parameters, in the order of the activations that take one.
        betas: Second parameters, likewise.
        clip: Bound on the absolute value of every activation's input; None for no bound.

    Raises:
        ValueError: An unknown name, or too few.
    """
    if len(names) < each * directions:
        raise ValueError(f"expected {each * directions} activations, found {len(names)}")
    # Iterators: an activation without a parameter takes none, so positions do not correspond.
    given = {"alpha": iter(alphas), "beta": iter(betas)}
    chosen = []
    for name in names[: each * directions]:
        if name.lower() not in GATE_ACTIVATIONS:
            raise ValueError(
                f"expected an activation of {', '.join(GATE_ACTIVATIONS)}, found {name!r}"
            )
        function, defaults = GATE_ACTIVATIONS[name.lower()]
        chosen.append((function, {key: next(given[key], defaults[key]) for key in defaults}))
    return [functools.partial(apply, xp, clip, chosen[k::each]) for k in range(each)]


def apply(
    xp: Namespace,
    clip: float | None,
    functions: Sequence[tuple[Callable[..., Array], dict[str, Any]]],
    x: Array,
) -> Array:
    """Return x through one function per item of its first axis."""
    if clip is not None:
        x = xp.clip(x, -clip, clip)
    function, parameters = functions[0]
    if all(other == functions[0] for other in functions[1:]):
        return function(xp, x, **parameters)
    return xp.stack([f(xp, x[d], **given) for d, (f, given) in enumerate(functions)])
