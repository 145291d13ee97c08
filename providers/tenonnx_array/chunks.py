"""Operators that numpy computes in chunks of large arrays, between which a run can be stopped.

A rule says along which axis an operator's inputs and outputs can be cut: the operator computes a
chunk of the outputs from a chunk of the inputs. Chunks depend on shapes alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.graph import python_attributes
from tenonnx.interruption import MOVED, pieces
from tenonnx.operators import Array
from tenonnx_array import chunk_rules
from tenonnx_array.allocation import check_allocation
from tenonnx_array.chunk_rules import Cut, Given
from tenonnx_array.piecewise import piecewise

PAGE = 4096
"""Bytes of memory that are made when the first of them is written."""

PIECEWISE = 1 << 21
"""Elements of an array beyond which pieces cost little beside what is done."""

NEWEST = 1 << 16
"""Version of operators of other domains: rules tell those of ai.onnx apart."""

if TYPE_CHECKING:
    import onnx_ir as ir


def in_chunks(
    call: Callable[..., Any],
    node: ir.Node,
    inputs: Sequence[Any],
    rule: str,
    whole: Callable[..., Any],
) -> Any:
    """Returns what a node's kernel does, chunk by chunk.

    Where a chunk is large, or nothing can be cut, numpy's operations are done in pieces instead.

    Args:
        call: The kernel, bound to the node's attributes.
        node: It says how many outputs are wanted, of those that the kernel has.
        inputs: The node's.
        rule: How its operator is cut: the name of one of `chunk_rules`.
        whole: The kernel as it is called where nothing is cut.
    """
    version = NEWEST if node.domain else node.version or 1
    given = Given(node.op_type, version, python_attributes(node), len(node.outputs))
    cut = cut_of(given, inputs, rule)
    if cut is None:
        large = chunk_rules.largest(given, inputs) > PIECEWISE
        return piecewise(whole, *inputs) if large else whole(*inputs)
    if cut.work <= cut.longest:
        return whole(*inputs)
    if cut.work > 2 * cut.length * cut.longest:
        call = functools.partial(piecewise, call)
    results: list[Array | None] = []
    several = False
    for some in pieces(cut.length, cut.work, cut.longest):
        found = call(*(_part(x, axis, some) for x, axis in zip(inputs, cut.inputs, strict=True)))
        several = isinstance(found, tuple)
        parts = found[: given.outputs] if several else (found,)
        if not results:
            results = [None if part is None else _whole(part, cut) for part in parts]
        for result, part in zip(results, parts, strict=True):
            if result is not None:
                result[_index(cut.output, some)] = part
    return tuple(results) if several else results[0]


def cut_of(given: Given, inputs: Sequence[Any], rule: str) -> Cut | None:
    """Returns how a node's inputs are cut; ``None`` if they cannot be, or do not fit."""
    if not all(x is None or isinstance(x, np.ndarray) for x in inputs):
        return None
    try:
        cut: Cut | None = getattr(chunk_rules, rule)(given, inputs)
    except (ValueError, IndexError, TypeError, AttributeError):
        return None  # what is wrong about them is the operator's to say
    return cut


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
