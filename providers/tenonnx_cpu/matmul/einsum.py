"""Einsum of two operands as products of matrices, whose axes are several of the operands' each."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F64, reshaped
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.data_movement.transpose import in_order, leaves_graph
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import product_launch, request
from tenonnx_cpu.matmul.wide import MULTIPLY_WIDE, WIDE_CODES, wide_launch


@cacheable
class Contraction(NamedTuple):
    """A sum of products over the axes that two operands have and the result has not.

    Attributes:
        left: The first operand's axes: those that all have, its own, and those that are summed.
        right: The second operand's: those that all have, those that are summed, and its own.
        batch: How many axes all have.
        summed: How many are summed.
        order: The result's axes, of those that all have, the first operand's and the second's.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    batch: int
    summed: int
    order: tuple[int, ...]


def contraction_of(equation: str) -> Contraction | None:
    """Return what an equation means as a product of matrices; ``None`` if it is none.

    An axis is in one of the operands and in the result, or in both operands; none is twice in one.
    """
    inputs, arrow, result = equation.replace(" ", "").partition("->")
    a, comma, b = inputs.partition(",")
    if not arrow or not comma or not (a + b + result).isalpha():
        return None
    if any(len(set(term)) < len(term) for term in (a, b, result)):
        return None
    if (set(a) ^ set(b)) - set(result) or set(result) - set(a + b):
        return None
    batch = [axis for axis in result if axis in a and axis in b]
    rows, columns = ([axis for axis in result if axis not in other] for other in (b, a))
    summed = [axis for axis in a if axis not in result]
    made = [*batch, *rows, *columns]
    return Contraction(
        tuple(a.index(axis) for axis in (*batch, *rows, *summed)),
        tuple(b.index(axis) for axis in (*batch, *summed, *columns)),
        len(batch),
        len(summed),
        tuple(made.index(axis) for axis in result),
    )


def order_of(equation: str) -> tuple[int, ...]:
    """Return the order that an equation puts an operand's axes into; none if it does else."""
    axes, arrow, result = equation.replace(" ", "").partition("->")
    is_order = arrow and axes.isalpha() and len(set(axes)) == len(axes) == len(result)
    return tuple(map(axes.index, result)) if is_order and set(axes) == set(result) else ()


@cacheable
def _turned(order: tuple[int, ...], plain: Call, x: NDArray) -> NDArray:
    return x.transpose(order) if x.ndim == len(order) else plain(x)


@specialize("Einsum")
def specialize_einsum(site: Site, plain: Call) -> Call | None:
    """Take two operands of float32, of float64 or of whole numbers of 4 and 8 bytes."""
    equation = str(site.attribute("equation", ""))
    if (order := order_of(equation)) and leaves_graph(site):
        return in_order(site, functools.partial(_turned, order, plain))
    form = contraction_of(equation)
    if form is None or len(site.node.inputs) != 2:
        return None
    if site.dtype(0) in WIDE_CODES:
        MULTIPLY_WIDE.request()
    else:
        request("f32")
    return Capturable(functools.partial(_contracted, form, site.threads, plain))


@cacheable
def _contracted(form: Contraction, threads: int, plain: Call, a: NDArray, b: NDArray) -> Any:
    """Return a launch, or the result."""
    if a.ndim != len(form.left) or b.ndim != len(form.right):
        return plain(a, b)
    left, right = a.transpose(form.left), b.transpose(form.right)
    own = left.ndim - form.summed
    batch, rows, depth = left.shape[: form.batch], left.shape[form.batch : own], left.shape[own:]
    columns = right.shape[form.batch + form.summed :]
    if right.shape != (*batch, *depth, *columns):  # an axis of length 1 may stand for more
        return plain(a, b)
    x = reshaped(left, (*batch, math.prod(rows), math.prod(depth)))
    y = reshaped(right, (*batch, math.prod(depth), math.prod(columns)))
    made = product_launch(x, y, threads) or wide_launch(x, y, threads)
    if made is None and not a.dtype == b.dtype == F64:
        return plain(a, b)
    # Large ones of float64 are BLAS'.
    product = np.matmul(x, y) if made is None else made.result
    result = product.reshape((*batch, *rows, *columns)).transpose(form.order)
    return result if made is None else made._replace(result=result)
