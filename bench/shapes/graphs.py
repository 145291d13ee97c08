"""Graphs of many small nodes, whose cost is that of a node in a first run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper

from bench.builder import BOOL, FLOAT, Builder, Feeds

Built = tuple[onnx.ModelProto, Feeds]

ROWS, COLUMNS = 4, 8


def _finish(b: Builder, outputs: list[str], **more: tuple[int, list[int | str]]) -> Built:
    shape: list[int | str] = ["n", COLUMNS]
    proto = b.model({"x": (FLOAT, shape), **more}, dict.fromkeys(outputs, (FLOAT, shape)))
    feeds: Feeds = {"x": np.random.default_rng(1).random((ROWS, COLUMNS), np.float32)}
    return proto, feeds | {name: np.array(True) for name in more}


def gathers(count: int = 1000) -> Built:
    """Permutations of columns."""
    b, x = Builder(), "x"
    order = b.ints(*range(COLUMNS)[::-1])
    for _ in range(count):
        x = b("Gather", x, order, axis=1)
    return _finish(b, [x])


def concats_and_slices(count: int = 1000) -> Built:
    """Columns appended, and taken off."""
    b, x = Builder(), "x"
    for _ in range(count // 2):
        x = b("Concat", x, "x", axis=1)
        x = b("Slice", x, b.ints(1), b.ints(1 + COLUMNS), b.ints(1))
    return _finish(b, [x])


def products(count: int = 3000) -> Built:
    """Products by a matrix, all of which are outputs."""
    b, x, made = Builder(), "x", []
    weight = b.normal(COLUMNS, COLUMNS)
    for _ in range(count):
        x = b("MatMul", x, weight)
        made.append(x)
    return _finish(b, made)


def ifs(count: int = 500) -> Built:
    """Choices of one node each."""
    b, x = Builder(), "x"
    for n in range(count):
        bodies = {}
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
            node = helper.make_node(op, [x], [f"{name}{n}"])
            made = helper.make_tensor_value_info(f"{name}{n}", FLOAT, None)
            bodies[name] = helper.make_graph([node], name, [], [made])
        x = b("If", "choice", **bodies)
    return _finish(b, [x], choice=(BOOL, []))


def mixed(count: int = 2000) -> Built:
    """Nodes of ten operators."""
    b, x = Builder(), "x"
    weight, order = b.normal(COLUMNS, COLUMNS), b.ints(*range(COLUMNS)[::-1])
    made: list[Callable[[str], str]] = [
        lambda x: b("MatMul", x, weight),
        lambda x: b("Softmax", x, axis=-1),
        lambda x: b("Gather", x, order, axis=1),
        lambda x: b("Transpose", x, perm=[1, 0]),
        lambda x: b("Reshape", x, b.ints(-1, COLUMNS)),
        lambda x: b("ReduceMax", x, axes=[1], keepdims=1),
        lambda x: b("Sub", "x", x),
        lambda x: b("Concat", x, "x", axis=0),
        lambda x: b("Slice", x, b.ints(0), b.ints(ROWS), b.ints(0)),
        lambda x: b("Sigmoid", x),
    ]
    for n in range(count):
        x = made[n % len(made)](x)
    return _finish(b, [x])


GRAPHS: Mapping[str, Callable[..., Built]] = {
    "1000 Gathers": gathers,
    "1000 Concats and Slices": concats_and_slices,
    "3000 MatMuls": products,
    "500 Ifs": ifs,
    "2000 mixed nodes": mixed,
}
