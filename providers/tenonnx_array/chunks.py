"""Operators that numpy computes in chunks of large arrays, between which a run can be stopped.

A rule says along which axis an operator's inputs and outputs can be cut: what a chunk of the
outputs is, is what the operator makes of a chunk of the inputs. Chunks depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.graph import python_attributes
from tenonnx.interruption import MOVED, pieces
from tenonnx.operators import Array
from tenonnx_array.allocation import check_allocation
from tenonnx_array.chunk_rules import RULES, Cut, Given

PAGE = 4096
"""Bytes of memory that are made when the first of them is written."""

if TYPE_CHECKING:
    import onnx_ir as ir


def in_chunks(call: Callable[..., Any], node: ir.Node, inputs: Sequence[Any]) -> Any:
    """Returns what a node's kernel does, of whose outputs the first is wanted, chunk by chunk.

    It is all of them at once if the operator, or these inputs, cannot be cut.
    """
    given = Given(node.op_type, node.version or 1, python_attributes(node))
    cut = cut_of(given, inputs)
    if cut is None or cut.work <= cut.longest:
        return call(*inputs)
    result: Array | None = None
    several = False
    for some in pieces(cut.length, cut.work, cut.longest):
        part = call(*(_part(x, axis, some) for x, axis in zip(inputs, cut.inputs, strict=True)))
        if several := isinstance(part, tuple):
            part = part[0]
        if result is None:
            result = _whole(part, cut)
        result[_index(cut.output, some)] = part
    return (result,) if several else result


def cut_of(given: Given, inputs: Sequence[Any]) -> Cut | None:
    """Returns how a node's inputs are cut; ``None`` if they cannot be, or do not fit."""
    rule = RULES[given.op_type]
    if not all(x is None or isinstance(x, np.ndarray) for x in inputs):
        return None
    try:
        return rule(given, inputs)
    except (ValueError, IndexError, TypeError, AttributeError):
        return None  # what is wrong about them is the operator's to say


def _index(axis: int, some: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, some)


def _part(x: Any, axis: int | None, some: slice) -> Any:
    return x if axis is None else x[_index(axis, some)]


def _whole(part: Array, cut: Cut) -> Array:
    """Returns memory for the result, made before a chunk of columns makes all of it at once."""
    shape = (*part.shape[: cut.output], cut.length, *part.shape[cut.output + 1 :])
    check_allocation(np, shape, part.dtype)
    result = np.empty(shape, part.dtype)
    if cut.output:
        words = result.reshape(-1)
        for some in pieces(len(words), len(words), MOVED):
            words[some][:: max(1, PAGE // part.itemsize)] = part.flat[0]
    return result
