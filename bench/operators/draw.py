"""Operands of a size, drawn by element type and by what an operator declares of their shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bench.operators.declared import Operator, dtype_of
from tenonnx.graph.operand_shapes import EXPRESSION_NAMES, parsed

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]

WORDS = np.array(["a", "tensor", "of words", "12.5", "ONNX", "-3"], object)


class Size(NamedTuple):
    """The sizes of a row's operands.

    Attributes:
        name: The size's.
        rows, columns: Of a matrix with as many elements as the size says.
        cube: The length of each axis of three with about as many.
        image: Channels, height and width with about as many.
        product: The sides of matrices whose product takes no more than 10 ms.
        few: The length of an axis that little work is done for.
    """

    name: str
    rows: int
    columns: int
    cube: int
    image: Shape
    product: int
    few: int

    @property
    def elements(self) -> int:
        """All elements of the matrix."""
        return self.rows * self.columns


SMALL = Size("small", 25, 40, 10, (10, 10, 10), 16, 10)
LARGE = Size("large", 1000, 1000, 100, (16, 250, 250), 256, 100)
SIZES = {size.name: size for size in (SMALL, LARGE)}


# Of an operand: sixteen times as many as a large one should have.
MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Constant:
    """An operand that a model has as a constant: numbers as given, or a shape to draw."""

    value: Any
    kind: str = ""


@dataclass(frozen=True)
class Places:
    """Whole numbers below a limit, as indices are."""

    shape: Shape
    below: int


# An operand: a shape to draw, what stands for numbers, numbers, or nothing.
Given: TypeAlias = "Shape | Constant | Places | Array | None"


@dataclass(frozen=True)
class Form:
    """One way to call an operator.

    Attributes:
        name: What tells it from the operator's others.
        operands: In order.
        attributes: The node's.
        outputs: How many the node has.
        only: The element types of the first operand that suit it; all if empty.
    """

    name: str
    operands: Sequence[Given]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for given in self.operands:
            shape = given.shape if isinstance(given, Places | np.ndarray) else given
            shape = given.value if isinstance(given, Constant) else shape
            if isinstance(shape, tuple) and math.prod(shape) > MOST_ELEMENTS:
                raise ValueError(f"an operand of {shape} has more than {MOST_ELEMENTS:,} elements")


def numbers(shape: Shape, name: str, positive: bool = False) -> Array:
    """Return numbers of an element type: none is 0, whole ones are small, words are some."""
    rng = np.random.default_rng((46, *shape))
    if name == "string":
        return WORDS[rng.integers(0, len(WORDS), shape)]
    dtype = dtype_of(name)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name.startswith(("int", "uint")):
        narrow = 2 if name.endswith("t2") else 7 if name.endswith("t4") else 50
        drawn = rng.integers(1, narrow, shape)
        if name[0] == "i" and not positive:
            drawn *= rng.choice([-1, 1], shape)
        return np.asarray(drawn).astype(dtype)
    drawn = rng.standard_normal(shape).astype(np.float32)
    return np.asarray(np.abs(drawn) + 0.1 if positive else drawn).astype(dtype)


def declared_form(operator: Operator, size: Size) -> Form:
    """Return a form whose shapes are as the operator declares them.

    Operands that are declared with no shape have one shape, a matrix's. One that would be too
    large is refused by ``Form``.
    """
    declared = parsed(operator.kernel.shapes or "")
    sizes = {"N": 1, "B": 1, "C": size.image[0], "M": size.few, "K": size.few}
    known: dict[str, Any] = {**EXPRESSION_NAMES, **operator.kernel.defaults()}
    shapes: dict[str, Shape] = {}
    for operand in declared.operands:
        shape: list[int] = []
        for expression in operand.shapes[0]:
            if expression.text == "...":
                shape += size.image[1:] if len(operand.shapes[0]) > 1 else [size.few]
            elif expression.text.startswith("*"):
                shape += expression.value(known) or ()
            elif (value := expression.value(known)) is None:
                value = known[expression.text] = sizes.get(expression.text, size.few)
                shape.append(value)
            else:
                shape.append(value[0] if isinstance(value, tuple) else value)
        shapes[operand.name] = known[operand.name] = tuple(shape)
    names = operator.kernel.operands()
    matrix = (size.rows, size.columns)
    needed = [
        shapes.get(names[place] if place < len(names) else "", matrix)
        for place, operand in enumerate(operator.operands)
        if operand.is_needed
    ]
    return Form("declared" if shapes else "", needed)
