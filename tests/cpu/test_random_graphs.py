"""Random graphs on kernels, with all transforms and fusions, against node after node on numpy.

So are they with their tail in a body. ``tests/fuzz`` has more of them, by number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from running import Arrays, require_kernels

import tenonnx
from fusing import Plain
from fuzz.bodies import tail_moved
from models import FLOAT, model, node, value

require_kernels()

SIZES = [1, 2, 3, 5, 8, 16, 17, 32, 33]
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "HardSwish", "Softsign", "Erf", "Abs", "Neg"]


PLAIN = tenonnx.SessionOptions(
    plugins=tenonnx.PluginSet(),
    graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL,
)
assert PLAIN.plugins is not None
PLAIN.plugins.register(Plain())


class Graph:
    """Nodes, and what each makes of the inputs: computed by itself, on numpy, when it is added."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.random = np.random.default_rng(self.choose([0, 1, 2]))
        self.nodes: list[Any] = []
        self.weights: Arrays = {}
        self.values: Arrays = {}

    def choose(self, options: Sequence[Any]) -> Any:
        return self.data.draw(st.sampled_from(options))

    def input(self, *shape: int) -> None:
        array = self.random.standard_normal(shape, np.float32)
        self.values[f"x{len(self.values)}"] = array

    def weight(self, *shape: int) -> str:
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        made = np.asarray(self.random.standard_normal(shape, np.float32))
        return self.constant(made / np.float32(np.sqrt(fan)))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def add(self, op: str, inputs: str, **attributes: Any) -> str:
        names = inputs.split()
        name = f"v{len(self.nodes)}"
        made = node(op, inputs, name, **attributes)
        feeds = {n: self.values[n] for n in names if n in self.values}
        known = {n: self.weights[n] for n in names if n in self.weights}
        types = {n: helper.np_dtype_to_tensor_dtype(array.dtype) for n, array in feeds.items()}
        given = [value(n, kind, [None] * feeds[n].ndim) for n, kind in types.items()]
        alone = model([made], given, [value(name, 0, None)], known)
        (self.values[name],) = tenonnx.InferenceSession(alone, PLAIN, ["plain"]).run(None, feeds)
        self.nodes.append(made)
        return name

    def any(self, fits: Callable[[Any], bool]) -> str | None:
        floats = {n: array for n, array in self.values.items() if array.dtype == np.float32}
        found = [name for name, array in floats.items() if fits(array)]
        return self.choose(found[-3:]) if found else None


def activate(graph: Graph, x: str) -> None:
    if op := graph.choose(["", "Swish", *ACTIVATIONS]):
        graph.add("Mul", f"{x} {graph.add('Sigmoid', x)}") if op == "Swish" else graph.add(op, x)


def product(graph: Graph, x: str) -> None:
    depth, columns = graph.values[x].shape[-1], graph.choose(SIZES)
    y = graph.add("MatMul", f"{x} {graph.weight(depth, columns)}")
    if graph.choose([True, False]):
        y = graph.add("Add", f"{y} {graph.weight(columns)}")
    activate(graph, y)


def gemm(graph: Graph, x: str) -> None:
    if graph.values[x].ndim == 2:
        depth, columns = graph.values[x].shape[1], graph.choose(SIZES)
        bias = graph.weight(*graph.choose([(), (1,), (columns,), (1, columns)]))
        y = graph.add("Gemm", f"{x} {graph.weight(columns, depth)} {bias}", transB=1)
        activate(graph, y)


def convolution(graph: Graph, x: str) -> None:
    shape = graph.values[x].shape
    if len(shape) < 3:
        return
    group = graph.choose([1, shape[1]])
    rows = group if group > 1 else graph.choose(SIZES)
    kernel = [graph.choose([1, 3])] * (len(shape) - 2)
    inputs = f"{x} {graph.weight(rows, shape[1] // group, *kernel)} {graph.weight(rows)}"
    pads, strides = [kernel[0] // 2] * 2 * len(kernel), [graph.choose([1, 2])] * len(kernel)
    y = graph.add("Conv", inputs, pads=pads, strides=strides, group=group)
    other = graph.any(lambda array: array.shape == graph.values[y].shape)
    if other != y and graph.choose([True, False]):
        y = graph.add("Add", f"{y} {other}")
    activate(graph, y)


def normalization(graph: Graph, x: str) -> None:
    scale = graph.weight(graph.values[x].shape[-1])
    other = graph.any(lambda array: array.shape == graph.values[x].shape)
    x = graph.add("Add", f"{x} {other}")
    graph.add("LayerNormalization", f"{x} {scale}", epsilon=0.1)


def narrow(graph: Graph, x: str) -> None:
    matrix = graph.constant(graph.weights[graph.weight(graph.values[x].shape[-1], 8)].astype("f2"))
    y = graph.add("MatMul", f"{graph.add('Cast', x, to=10)} {matrix}")
    graph.add("Cast", graph.add("Softmax", y), to=FLOAT)


def moved(graph: Graph, x: str) -> None:
    array = graph.values[x]
    op = graph.choose(["Transpose", "Concat", "Slice", "Softmax", "ReduceMean", "Max", "Unsqueeze"])
    if op == "Transpose":
        graph.add(op, x, perm=[0, *range(array.ndim - 1, 0, -1)])
    elif op == "Concat":
        graph.add(op, f"{x} {x}", axis=-1)
    elif op == "Slice":
        given = ([graph.choose([0, 1, -1])], [2**62], [-1])
        graph.add(op, " ".join([x, *(graph.constant(np.array(each)) for each in given)]))
    elif op == "Softmax":
        graph.add(op, x, axis=graph.choose([-1, array.ndim - 1, 1]))
    elif op == "ReduceMean":
        graph.add(op, f"{x} {graph.constant(np.array([-1]))}")
    elif op == "Max":
        graph.add(op, f"{x} {graph.weight(*array.shape[1:])}")
    elif array.ndim < 4:
        graph.add(op, f"{x} {graph.constant(np.array([1]))}")


LAYERS = [product, gemm, convolution, convolution, normalization, narrow, moved, moved]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_graphs_are_what_their_nodes_are(data: st.DataObject) -> None:
    graph = Graph(data)
    graph.input(*graph.choose([(3, 7), (2, 5, 16), (2, 6, 9), (1, 3, 9, 8), (2, 8, 7, 14)]))
    for layer in data.draw(st.lists(st.sampled_from(LAYERS), min_size=2, max_size=7)):
        layer(graph, graph.any(lambda array: array.ndim > 1 and array.size > 0) or "x0")
    read = {name for each in graph.nodes for name in each.input}
    outputs = [n for n in graph.values if n != "x0" and (n not in read or graph.choose([0, 0, 1]))]
    x = graph.values["x0"]
    kinds = {name: helper.np_dtype_to_tensor_dtype(graph.values[name].dtype) for name in outputs}
    results = [value(name, kind, None) for name, kind in kinds.items()]
    proto = model(graph.nodes, [value("x0", shape=["n", *x.shape[1:]])], results, graph.weights)
    options = tenonnx.SessionOptions()
    options.intra_op_num_threads = graph.choose([1, 4])
    session = tenonnx.InferenceSession(proto, options, providers=["cpu"])
    moved = tail_moved(proto, {"x0": x}, random.Random(graph.choose(range(64))))
    in_bodies = []
    for level in (0, 99):
        if moved is None:
            continue
        options.graph_optimization_level = tenonnx.GraphOptimizationLevel(level)
        other = tenonnx.InferenceSession(moved[0], options, providers=["cpu"])
        in_bodies.append(other.run(None, moved[1]))
    wide = np.repeat(x, 2, 0)[::-1]
    made = session.run(None, {"x0": x}), session.run(None, {"x0": wide})
    again = session.run(None, {"x0": x})
    half = any(each.op_type == "Cast" for each in graph.nodes)
    for name, once, twice, repeated in zip(outputs, *made, again, strict=True):
        expected = graph.values[name]
        assert once.dtype == expected.dtype
        atol = (1e-2 if half else 2e-5) * (1 + float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(once, expected, rtol=0, atol=atol, err_msg=name)
        np.testing.assert_allclose(twice[::-1][::2], expected, rtol=0, atol=atol, err_msg=name)
        assert once.tobytes() == repeated.tobytes()
    for found in in_bodies:
        for name, array in zip(outputs, found, strict=True):
            expected = graph.values[name]
            assert array.dtype == expected.dtype
            atol = (1e-2 if half else 2e-5) * (1 + float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(array, expected, rtol=0, atol=atol, err_msg=name)
