"""Operations on a product within the same call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenonnx.operators import Array


@dataclass(frozen=True)
class Epilogue:
    """``activation(alpha * product + beta * added + bias)``, rounded once.

    Attributes:
        alpha: A factor.
        beta: A factor.
        added: Of the product's shape.
        bias: A number for each column.
        activation: ``Relu``, ``GeluTanh``, or none.
    """

    alpha: float = 1.0
    beta: float = 1.0
    added: Array | None = None
    bias: Array | None = None
    activation: str = ""


def epilogue_of(
    added: Sequence[Array],
    shape: tuple[int, ...],
    alpha: float = 1.0,
    beta: float = 1.0,
    activation: str = "",
) -> Epilogue | None:
    """Return the epilogue of a product to which arrays are added; ``None`` if it is none.

    Args:
        added: What is added to a product.
        shape: The product's.
        alpha: What multiplies it.
        beta: What multiplies the first one that is added.
        activation: What follows.
    """
    whole = bias = None
    of_whole = 1.0
    for position, array in enumerate(added):
        factor = 1.0 if position else beta
        fits = 0 < array.ndim <= len(shape)  # else the sum has more axes than the product
        is_row = fits and array.size == array.shape[-1] == shape[-1]
        if is_row and factor == 1 and bias is None:
            bias = array
        elif array.shape == shape and whole is None:
            whole, of_whole = array, factor
        else:
            return None
    return Epilogue(alpha, of_whole, whole, bias, activation)
