"""Loading takes work in proportion to the graph: calls are counted, for time is never the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value

FEW, MANY = 40, 160

ROW = np.ones((1, 16), np.float32)


def chain(count: int) -> onnx.ModelProto:
    """Few weights, and every fiftieth result read once more."""
    nodes, last, far = [], "x", "x"
    for n in range(count):
        kind, inputs = (("Add", f"{last} a"), ("Relu", last), ("Mul", f"{last} a"))[n % 3]
        if n % 50 == 49:
            kind, inputs, far = "Add", f"{last} {far}", f"v{n}"
        last = f"v{n}"
        nodes.append(node(kind, inputs, last))
    return _model(nodes, last, {"a": ROW})


def weights(count: int) -> onnx.ModelProto:
    """A weight for each node."""
    nodes = [node("Add", f"{f'v{n - 1}' if n else 'x'} w{n}", f"v{n}") for n in range(count)]
    return _model(nodes, f"v{count - 1}", {f"w{n}": ROW * n for n in range(count)})


def repeated(count: int) -> onnx.ModelProto:
    """Half of the nodes compute what others do."""
    nodes, last = [], "x"
    for n in range(count // 4):
        nodes += [node("Sigmoid", last, f"a{n}"), node("Sigmoid", last, f"b{n}")]
        last = f"v{n}"
        nodes += [node("Add", f"a{n} b{n}", f"s{n}"), node("Mul", f"s{n} a", last)]
    return _model(nodes, last, {"a": ROW})


def branches(count: int) -> onnx.ModelProto:
    """A tree, all of whose values are added up one after the other."""
    half = count // 2
    nodes = [node("Relu", "x", "v0")]
    nodes += [node("Relu", f"b{n // 2}" if n > 1 else "x", f"b{n}") for n in range(1, half)]
    nodes += [node("Add", f"v{n - 1} b{n}", f"v{n}") for n in range(1, half)]
    return _model(nodes, f"v{half - 1}", {})


def _model(nodes: list[Any], last: str, given: dict[str, Any]) -> onnx.ModelProto:
    shape = [1, 16]
    return model(nodes, [value("x", FLOAT, shape)], [value(last, FLOAT, shape)], given)


def calls_of_loading(proto: onnx.ModelProto) -> int:
    """Return how many functions are called, Python's and those written in C."""
    count = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        tenonnx.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("graph", [chain, weights, repeated, branches])
def test_loading_takes_work_in_proportion(graph: Callable[[int], onnx.ModelProto]) -> None:
    calls_of_loading(graph(FEW))  # imports what it needs
    few, many = calls_of_loading(graph(FEW)), calls_of_loading(graph(MANY))
    assert many < 1.15 * few * MANY / FEW, f"{FEW}: {few}, {MANY}: {many}"
